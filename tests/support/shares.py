"""Cases of a test that `make test` runs, and those that only a share of the long suite runs."""

from collections.abc import Iterable
from typing import Any

import pytest


def long_except(always: Iterable[Any], cases: Iterable[Any]) -> list[Any]:
    """Marks as long all cases but those in `always`, by equality."""
    kept = list(always)
    return [case if case in kept else pytest.param(case, marks=pytest.mark.long) for case in cases]
