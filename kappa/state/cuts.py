"""The cuts of a proof: where its slices end, and which are computed without a Spark job.

They are put into the folder that the proof folds into.
"""

from __future__ import annotations

from msgspec import Struct

from kappa.base.errors import Damaged
from kappa.state.documents import Documents
from kappa.state.offsets import Offsets
from kappa.state.store import Store

_NAME = "cuts.json"


class Cuts(Struct, frozen=True):
    """The end of each slice, the first of which begins at the build's origin.

    Slices of at most `driver_rows` offsets take no Spark job to be read.
    """

    ends: tuple[Offsets, ...]
    driver_rows: int
    format: int = 1


_CUTS = Documents(Cuts)


def put_cuts(folder: Store, cuts: Cuts) -> None:
    """Puts the cuts."""
    _CUTS.put(folder, _NAME, cuts)


def read_cuts(folder: Store) -> Cuts:
    """Returns the cuts. Raises Damaged if the folder has none."""
    where = str(folder.path(_NAME))
    found = _CUTS.get(folder, _NAME, where)
    if found is None:
        raise Damaged(f"{where} is gone", hint="type kappa prove again")
    return found
