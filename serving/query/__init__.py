"""Answers of DuckDB over exactly the pinned files. The only door to duckdb beside the sandbox."""
