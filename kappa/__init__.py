"""Kappa: a replayable event platform. The file of a pipeline imports from here.

These are the packages, in the order to read them. Each package imports only packages above it in
this list (tests/test_packages.py checks the imports):

    base        errors, settings, processes, files, Java: used by every package
    declare     the declarations of users: types, formats, folds, topics, tables, views, pipelines
    state       all that a root stores except rows: files, journal, builds, frontiers, leases
    code        the version of a pipeline's code
    tables      stored rows: Delta tables, archives, maintained views
    kafka       the only access to Kafka and to a schema registry; the embedded broker
    records     decoding of records into valid events, and encoding of events
    engine      jobs, which fold slices of records with Spark and commit the rows
    serving     readers of the tables: queries, outlets, HTTP; and the collector of events
    replay      decisions about rollouts; the status, the page and the processes of the platform
    project     `kappa.Project`: the commands as an object, for programs and notebooks
    agents      an MCP server, by which AI agents read, plan and stage
    commands    the command line

`testing.py` contains helpers for tests of pipelines, and `pytest_plugin.py` keeps a Spark session
open for these tests. `setup.py` prepares the machine. `serving` and `replay` are folders at the top
of the repository; this package contains symbolic links to them.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kappa.declare.public_names import *  # noqa: F403  # the names are listed there
    from kappa.project.project import Project as Project  # for users' type checks
    from kappa.project.remote_project import connect as connect  # likewise
else:

    def __getattr__(name: str) -> Any:
        """Imports a public name of Kappa when the name is first used.

        Most commands need no declarations, and start faster without these imports.
        """
        if name == "Project":
            from kappa.project.project import Project  # noqa: PLC0415  # as said above

            return Project
        if name == "connect":
            from kappa.project.remote_project import connect  # noqa: PLC0415  # as said above

            return connect
        from kappa.declare import public_names  # noqa: PLC0415  # as said above

        if name == "__all__" or name in public_names.__all__:
            return getattr(public_names, name)
        raise AttributeError(f"module 'kappa' has no attribute {name!r}")
