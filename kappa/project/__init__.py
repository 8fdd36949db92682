"""A project for Python programs: `kappa.Project`. The command line uses the same class.

This package makes no decisions: it calls other packages, and its objects store the values that a
caller needs between two calls. Nothing in this package writes to the terminal, and importing the
package imports neither Spark nor DuckDB. Read the modules in this order:

    project         the project: plan, deploy, stage, promote, undo, query, changes, status, produce
    project_plan    a plan, and functions that begin its rollouts and follow them until they end
    answers         the answer of a query in Arrow, pandas, Polars or Python; a pinned snapshot
    report          a listing with its text and its document, as HTML in a notebook
    remote_project  a project over HTTP, with the same methods, for asyncio
"""

__all__ = ["answers", "project", "project_plan", "remote_project", "report"]
