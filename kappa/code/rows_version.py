"""The rows version: the part of a version that decides rows. Pure.

Views are computed when they are read, unless they are maintained, and checks, sinks and alerts only
look at rows. Versions that differ in nothing else have one rows version, and tables of the one are
tables of the other. It is computed from what a birth certificate keeps, so builds that are older
than the rows version have one too.
"""

from __future__ import annotations

from collections.abc import Mapping

from kappa.code.declaration import declarations, without_checks
from kappa.code.fingerprint import version_of
from kappa.declare.pipeline import Pipeline
from kappa.state.build import Birth

_DECIDING_NO_ROWS = frozenset({"view", "sink", "alert"})


def declared_rows_version(pipeline: Pipeline, parts: Mapping[str, str]) -> str:
    """Returns the rows version of a declared pipeline whose version has these parts."""
    checks = {table.name: table.checks for table in pipeline.tables}
    checks |= {view.name: view.checks for view in pipeline.views}
    return _rows_version(parts, declarations(pipeline), checks)


def born_rows_version(birth: Birth) -> str:
    """Returns the rows version of a build.

    One that was born before declarations were kept shares it with builds of its own version only.
    """
    checks = {table.name: table.checks for table in birth.tables}
    return _rows_version(birth.parts, birth.declarations, checks)


def _rows_version(
    parts: Mapping[str, str],
    declared: Mapping[str, str],
    checks: Mapping[str, tuple[str, ...]],
) -> str:
    deciding = {}
    for part, hashed in parts.items():
        kind, name = part.split(" ")[0], part.split(" ")[-1]
        if kind in {"table", "maintained"} and part in declared:
            deciding[part] = without_checks(declared[part], checks.get(name, ()))
        elif kind not in _DECIDING_NO_ROWS:
            deciding[part] = hashed
    return version_of(deciding)
