"""Loops are compiled once per user, or once per process if nothing can be stored."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PROGRAM = """
import sys
sys.path.insert(0, {folder!r})
import loop
assert loop.total(20) == 190
print(sum(loop.total.stats.cache_hits.values()))
"""
LOOP = """
from kappa.base.loops import compiled

@compiled("int64(int64)")
def total(count):
    found = 0
    for number in range(count):
        found += number
    return found
"""


def hits(folder: Path, cache: Path, **more: str) -> int:
    """Returns the number of cache hits of compiled code in a new process."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), **more}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(folder=str(folder))],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return int(ran.stdout)


def test_what_is_compiled_is_found_again_until_its_source_is_another(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(LOOP)

    assert [hits(tmp_path, tmp_path / "cache") for _ in range(2)] == [0, 1]

    (tmp_path / "loop.py").write_text(LOOP + "\n")
    assert hits(tmp_path, tmp_path / "cache") == 0
    assert (tmp_path / "cache" / "kappa" / "compiled").is_dir()
    assert not list(tmp_path.glob("__pycache__/*.nb?"))


def test_where_nothing_can_be_kept_it_is_compiled_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(LOOP)
    # No folder can be made below a file, whoever asks.
    (tmp_path / "cache").touch()
    (tmp_path / "__pycache__").touch()

    assert (
        hits(
            tmp_path, tmp_path / "cache", HOME=str(tmp_path / "cache"), PYTHONDONTWRITEBYTECODE="1"
        )
        == 0
    )
