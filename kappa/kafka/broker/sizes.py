"""The bytes that partitions take on the embedded broker's disk, by segment files.

This module only reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path


def partition_bytes(root: Path, topics: Iterable[str]) -> Mapping[str, Mapping[int, int]]:
    """Returns the bytes of each partition's segments below a root folder.

    A topic without any folder is left out.
    """
    data = root / "broker" / "data"
    found: dict[str, dict[int, int]] = {}
    folders = [path for path in data.iterdir() if path.is_dir()] if data.is_dir() else []
    wanted = frozenset(topics)
    for path in folders:
        # Kafka's own rule: the partition's number is behind the last dash. The folder of a
        # partition that is being deleted ends otherwise.
        name, _, partition = path.name.rpartition("-")
        if name in wanted and partition.isdigit():
            found.setdefault(name, {})[int(partition)] = sum(map(_segment_size, path.glob("*.log")))
    return found


def _segment_size(segment: Path) -> int:
    try:
        return segment.stat().st_size
    except FileNotFoundError:
        # The file was compacted or deleted since the listing.
        return 0
