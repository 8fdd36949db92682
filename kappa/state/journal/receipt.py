"""The receipt of a switch: what a promote's record proves of each pipeline in it. Values."""

from __future__ import annotations

from msgspec import Struct

from kappa.state.build import Base
from kappa.state.journal.verification import Check, Difference, OutcomeCount
from kappa.state.offsets import Offsets


class Receipt(Struct, frozen=True):
    """The proof in a promote's record.

    `live_offsets` is None for the first build of a pipeline, which had nothing to hold. `code` and
    `live_code` are the hashes of both builds' sources (`Birth.code_sha256`), between which the
    code's diff was made. `base` is the base of a branch: up to its offsets the rows are another
    build's. `tables_of` is the build that an overlay is of: nothing was replayed.
    """

    pipeline: str
    build: str
    version: str
    candidate_offsets: Offsets
    live_build: str | None
    live_offsets: Offsets | None
    checks: tuple[Check, ...] = ()
    reasons: tuple[str, ...] = ()
    first: bool = False
    differences: tuple[Difference, ...] = ()
    counts: tuple[OutcomeCount, ...] = ()
    incomparable_topics: tuple[str, ...] = ()
    code: str = ""
    live_code: str | None = None
    base: Base | None = None
    tables_of: str | None = None


class Switched(Struct, frozen=True):
    """One pipeline's part in a switch: the rollout that ends with it, and its receipt."""

    rollout: int
    receipt: Receipt
