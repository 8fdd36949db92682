"""Where a proof cuts the log: its slices, and which of them are computed without a Spark job. Put into the folder that it folds into.

Read next: engine/children/refold.py, which folds them; replay/prove/prove.py, which chooses them.
"""

from __future__ import annotations

from dataclasses import dataclass

from kappa.state.documents import Documents
from kappa.state.frontier import OffsetsField
from kappa.state.store import Store

_NAME = "cuts.json"


@dataclass(frozen=True, slots=True)
class Cuts:
    """Where each slice ends, the first of which begins at the build's origin; those of at most `driver_rows` offsets take no Spark job to be read."""

    ends: tuple[OffsetsField, ...]
    driver_rows: int
    format: int = 1


_CUTS = Documents(Cuts)


def put_cuts(folder: Store, cuts: Cuts) -> None:
    """Puts where it is cut."""
    _CUTS.put(folder, _NAME, cuts)


def read_cuts(folder: Store) -> Cuts:
    """Where it is cut. Raises Damaged where that is not there."""
    return _CUTS.parse(folder.get_json(_NAME), str(folder.path(_NAME)))
