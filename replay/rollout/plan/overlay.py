"""Overlays: a version that changes no rows, on the tables that serve already. Pure.

Views are computed at each reading, and checks, sinks and alerts only look at rows, so they decide
no rows. A version that differs only in these needs no replay and no job. The new build serves the
tables of the live build, or, if the live build is an overlay, of the build below.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from kappa.code.fingerprint import born_rows_version
from kappa.declare.options import REJECTS
from kappa.replay.rollout.plan.facts import Declared
from kappa.state.build import Birth
from kappa.state.table import TableBirth


def has_its_rows(declared: Declared, born: Birth) -> bool:
    """Returns True if a declared pipeline has the rows of a build, so that no replay is needed.

    A replay is needed if libraries have made other columns of the same code since the birth.
    """
    return declared.rows_version == born_rows_version(born) and _served_columns(
        declared.tables
    ) == _served_columns(born.tables)


def overlay_birth(birth: Birth, live: Birth) -> Birth:
    """Returns an overlay's birth certificate, made of the declared and the live certificate.

    Everything about rows comes from the live build: tables, topics, origin, base and libraries.
    """
    declared = {table.name: table for table in birth.tables}
    return replace(
        birth,
        tables_of=live.folded_by,
        topics=live.topics,
        tables=tuple(
            replace(
                table,
                checks=declared[table.name].checks,
                thresholds=declared[table.name].thresholds,
            )
            for table in live.tables
        ),
        origin=live.origin,
        base=live.base,
        libraries=live.libraries,
        semantics=live.semantics,
        accepted=tuple(dict.fromkeys((*live.accepted, *birth.accepted))),
    )


def _served_columns(tables: Iterable[TableBirth]) -> dict[str, tuple[tuple[str, str], ...]]:
    # The rejects table has more columns in newer versions of Kappa, and is not the user's.
    return {table.name: table.served for table in tables if table.name != REJECTS}
