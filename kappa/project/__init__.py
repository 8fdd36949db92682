"""A project for Python programs: `kappa.Project`. The command line uses the same objects.

This package makes no decisions of its own: it calls the packages before it, and its objects store
the values that a caller needs between two calls. Nothing in this package writes to the terminal,
and importing the package imports neither Spark nor DuckDB. Read the modules in this order:

    project         the project: plan, deploy, stage, promote, undo, query, changes, status, produce
    project_plan    a plan, the rollouts that the plan begins, and following a rollout to its end
    answers         the answer of a query, as Arrow, pandas, Polars or Python values; a pin
    report          a listing with its text and its document, as HTML in a notebook
    remote_project  a project over HTTP, with the same methods, for asyncio
"""

__all__ = ["answers", "project", "project_plan", "remote_project", "report"]
