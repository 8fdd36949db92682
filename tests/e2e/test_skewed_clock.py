"""If the clock of a host is wrong, S3 refuses its requests to the root in a bucket."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jumping_clock
import pytest
from e2e_shop import LEAN_1
from object_store import ObjectStore, bucket_settings
from testbed import Testbed

pytestmark = [
    *(pytest.mark.long, pytest.mark.fault),
    pytest.mark.skipif(
        jumping_clock.why_not() is not None, reason=f"not run: {jumping_clock.why_not()}"
    ),
]

HOUR = 3600


@contextmanager
def host(
    folder: Path, settings: str, clock: jumping_clock.Clock | None = None
) -> Iterator[Testbed]:
    """Yields a host of the root, whose processes have the clock; they end with the block."""
    bed = Testbed(folder, settings)
    if clock is not None:
        # The one that types for all was started with the time of this machine.
        bed.typist = None
        bed.environment |= clock.environment
    bed.declare("shop", LEAN_1)
    try:
        yield bed
    finally:
        bed.ensure_gone()


@pytest.mark.parametrize("ahead", [HOUR, -HOUR])
def test_a_clock_that_s3_does_not_take_is_named(
    object_store: ObjectStore, tmp_path: Path, ahead: int
) -> None:
    clock = jumping_clock.Clock(tmp_path)
    clock.jump(ahead)
    settings = bucket_settings(object_store.new_root(), object_store.storage, "127.0.0.1:9")
    with host(tmp_path / "shop", settings, clock) as bed:
        for command in (("up", "-d"), ("status",), ("query", "select 1")):
            said = bed.kappa(*command)
            assert said.code != 0
            assert "the clock of this machine is not that of" in said.err
            assert "set the clock" in said.err
