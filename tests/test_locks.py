"""The lock files: each package has a version and hashes, and users get only runtime packages."""

from __future__ import annotations

import re
import tomllib

import pytest
from house import HOUSE

LOCKS = ("build", "run", "demo", "dev", "site")
PROJECT = tomllib.loads((HOUSE / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def pins(lock: str) -> dict[str, tuple[str, int]]:
    """Returns the version and the number of hashes of each package in a lock file."""
    text = (HOUSE / "requirements" / f"{lock}.lock").read_text(encoding="utf-8")
    entries = re.findall(
        r"^([a-z0-9.-]+)==(\S+)((?: \\\n {4}--hash=sha256:[0-9a-f]{64})*)$", text, re.MULTILINE
    )
    assert len(entries) == sum("==" in line for line in text.splitlines())
    return {name: (version, hashes.count("--hash")) for name, version, hashes in entries}


@pytest.mark.parametrize("lock", LOCKS)
def test_each_pin_has_a_hash(lock: str) -> None:
    assert pins(lock)
    assert [name for name, (_, hashes) in pins(lock).items() if not hashes] == []


def test_a_package_is_in_one_lock() -> None:
    names = [name for lock in LOCKS for name in pins(lock)]

    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("lock", "required"),
    [
        ("run", PROJECT["dependencies"]),
        # Packages for users' tests, and for what is optional, are among those of developers.
        *(
            ("dev" if extra in {"test", "client", "mcp", "iceberg", "mqtt"} else extra, required)
            for extra, required in PROJECT["optional-dependencies"].items()
        ),
    ],
)
def test_a_lock_has_what_the_project_requires(lock: str, required: list[str]) -> None:
    locked = {f"{name}=={version}" for name, (version, _) in pins(lock).items()}

    assert {each.lower().replace("_", "-") for each in required} <= locked


def test_no_registry_is_named() -> None:
    for lock in LOCKS:
        assert "://" not in (HOUSE / "requirements" / f"{lock}.lock").read_text(encoding="utf-8")
