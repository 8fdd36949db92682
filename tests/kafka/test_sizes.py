"""The bytes that partitions occupy on the embedded broker's disk."""

from __future__ import annotations

from pathlib import Path

from kappa.kafka.broker.broker import partition_bytes


def segment(root: Path, folder: str, size: int, name: str = "00000000000000000000.log") -> None:
    path = root / "broker" / "data" / folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size))


def test_segments_are_added_up_per_partition_and_nothing_else_is(tmp_path: Path) -> None:
    segment(tmp_path, "web-hits-0", 10)
    segment(tmp_path, "web-hits-0", 7, "00000000000000000100.log")
    segment(tmp_path, "web-hits-0", 1000, "00000000000000000000.index")
    segment(tmp_path, "web-hits-12", 3)
    segment(tmp_path, "web-0", 100)
    segment(tmp_path, "web-hits-0.8d1f-delete", 1000)

    assert partition_bytes(tmp_path, ["web-hits", "other"]) == {"web-hits": {0: 17, 12: 3}}


def test_where_no_broker_ran_no_size_is_known(tmp_path: Path) -> None:
    assert partition_bytes(tmp_path, ["web"]) == {}
