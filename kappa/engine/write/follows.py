"""The rule that a slice begins where the newest frontier ends."""

from __future__ import annotations

from collections.abc import Mapping

from kappa.base.errors import Broken
from kappa.state.frontier import Frontier
from kappa.state.slices import Slice
from kappa.tables.stored_table import strangers


def ensure_follows(last: Frontier, piece: Slice, versions: Mapping[str, int]) -> None:
    """Raises Broken if a slice does not begin where the frontier ends (law 2).

    Raises KappaError if a table is not at the version that the frontier names (law 18).
    """
    if not last.offsets.equals(piece.start):
        raise Broken(
            f"build {last.build} has folded up to {last.offsets} (slice {last.leg}/{last.slice}), "
            f"and the next slice {piece.leg}/{piece.number} begins at {piece.start}",
            hint="this is a mistake in Kappa; kappa replay makes a new build from offset zero",
        )
    for name, version in versions.items():
        if version != last.versions.get(name, version):
            raise strangers(f"table {name} of build {last.build}", version, last.versions[name])
