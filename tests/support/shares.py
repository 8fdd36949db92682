"""The cases of a test that `make test` runs, and those that only a share of the long suite runs."""

from collections.abc import Iterable
from typing import Any

import pytest


def long_except(always: Iterable[Any], cases: Iterable[Any]) -> list[Any]:
    """Marks all cases as long except those that equal one in `always`.

    A case that is a tuple has several arguments.
    """
    kept = list(always)
    return [case if case in kept else _long(case) for case in cases]


def _long(case: Any) -> Any:
    arguments = case if isinstance(case, tuple) else (case,)
    return pytest.param(*arguments, marks=pytest.mark.long)
