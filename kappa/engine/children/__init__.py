"""Spark processes that do one thing and end: describe, law, refold."""
