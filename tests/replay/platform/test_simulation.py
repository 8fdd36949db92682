"""Seeds of the simulation: whatever fails, no invariant is broken (I1 to I10, I13)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import pytest
from between import Between
from object_store import ObjectStore
from shares import long_except
from simulated import simulate

from kappa.state.store import Store

# A test plays so many, so that a failure is found in seconds and named by its seed.
TOGETHER = 10
SEEDS = 100
MANY = 10_000
# Ten times as long as on a disk.
IN_A_BUCKET = 30

Opened = Callable[[Path], Store]


def played(
    first: int,
    new_root: Callable[[], Opened] = lambda: Store,
    failing: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Counter[str]:
    happened: Counter[str] = Counter()
    for seed in range(first, first + TOGETHER):
        try:
            happened += simulate(seed, opened=new_root(), failing=failing)
        except Exception as error:  # noqa: BLE001  # whatever it is, the seed is named
            pytest.fail(
                f"seed {seed}: {type(error).__name__}: {error}\n"
                f"again, step by step: python tests/support/simulated.py {seed}"
            )
    return happened


@pytest.mark.slow
@pytest.mark.parametrize("first", long_except([0, 10], range(0, SEEDS, TOGETHER)))
def test_a_seed_comes_to_rest_and_no_reader_goes_back(first: int) -> None:
    happened = played(first)

    # It is no calm sea: processes died, power was lost.
    assert happened["kill"] + happened["power"] >= TOGETHER


@pytest.mark.sweep
@pytest.mark.parametrize("first", range(SEEDS, MANY, TOGETHER))
def test_many_more_seeds_do(first: int) -> None:
    played(first)


@pytest.mark.sweep
@pytest.mark.parametrize("first", range(0, IN_A_BUCKET, TOGETHER))
def test_seeds_in_a_bucket_do(first: int, object_store: ObjectStore, between: Between) -> None:
    """The host's folder loses power, its calls fail, and answers of the bucket's server are lost.

    In spite of that, no invariant is broken.
    """

    def new_root() -> Opened:
        url = object_store.new_root()
        return lambda local: Store(url, storage=between.storage, local=local)

    @contextmanager
    def failing() -> Iterator[None]:
        between.losing_each = 29
        try:
            yield
        finally:
            between.losing_each = 0

    happened = played(first, new_root, failing)

    assert happened["kill"] + happened["power"] >= TOGETHER
