"""Parquet files that are read as one dataset, in this process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow.dataset as ds


def parquet_dataset(source: Path | Sequence[str]) -> ds.Dataset:
    """Opens a folder of Parquet files, or files by their paths."""
    # It imports pandas, which takes 0.4 s: a catch-up of few records does without.
    import pyarrow.dataset  # noqa: PLC0415

    return pyarrow.dataset.dataset(
        source if isinstance(source, Path) else list(source), format="parquet"
    )
