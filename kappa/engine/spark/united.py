"""The rows of several topics as one frame."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from pyspark.sql import DataFrame


def united(frames: Iterable[DataFrame]) -> DataFrame:
    """Returns the rows of a parameter's topics as one frame.

    The topics have the same columns.
    """
    return functools.reduce(lambda one, other: one.union(other), frames)
