"""Kappa: a replayable event platform. A pipeline's file imports all it needs from here.

The packages, in the order to read them in. Each imports only packages before its own line
(tests/test_packages.py holds that):

    base        errors, settings, processes, files, Java: what every package uses
    declare     what a user writes: types, formats, folds, topics, tables, views, pipelines
    state       all that is written down: files, journal, builds, frontiers, leases, locks
    code        which version the code of a pipeline is
    tables      rows at rest: Delta's tables, archives, maintained views
    kafka       the only door to Kafka and to a schema registry; the embedded broker
    records     bytes to valid events and back
    engine      offsets to commits: the slice, the job, Spark
    serving     readers: query, then outlets, http and collect
    replay      decisions: rollout, then status, page and platform
    project     `kappa.Project`: the commands as an object, for programs and notebooks
    agents      an MCP server: agents read, plan and stage
    commands    what a person types

`testing.py` is for tests of pipelines, and `pytest_plugin.py` keeps their Spark warm; `setup.py`
prepares the machine. `serving` and `replay` are folders at the top of the tree, and links here.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kappa.declare.public import *  # noqa: F403  # the names are listed there
    from kappa.project.project import Project as Project  # for users' type checks
    from kappa.project.remote import connect as connect  # likewise
else:

    def __getattr__(name: str) -> Any:
        """Imports the declarations when a name is first used: most commands need none."""
        if name == "Project":
            from kappa.project.project import Project  # noqa: PLC0415  # as said above

            return Project
        if name == "connect":
            from kappa.project.remote import connect  # noqa: PLC0415  # as said above

            return connect
        from kappa.declare import public  # noqa: PLC0415  # as said above

        if name == "__all__" or name in public.__all__:
            return getattr(public, name)
        raise AttributeError(f"module 'kappa' has no attribute {name!r}")
