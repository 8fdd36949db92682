"""Names in a root: pipelines, builds, rollouts, generations, tables, topics, alerts.

A shell asks for names at each TAB, and the doors to a root take longer to import than a TAB may
take. So this module reads files by the standard library alone, and checks no seal: a name that is
wrong completes a word that the command then refuses. A root in a bucket has no names here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# A long journal is not read to its beginning.
_RECORDS = 200


@dataclass(frozen=True, slots=True)
class RootNames:
    """The names in a root. `rollouts` are (number, pipeline), the newest first."""

    serving: dict[str, str] = field(default_factory=dict)
    generation: int = 0
    rollouts: tuple[tuple[int, str], ...] = ()
    builds: tuple[str, ...] = ()
    births: tuple[dict[str, Any], ...] = ()

    def tables(self) -> Iterator[tuple[str, str]]:
        """Yields each served table and view with its pipeline."""
        for birth in self.births:
            for name in (*(each["name"] for each in birth["tables"]), *birth["views"]):
                yield name, birth["pipeline"]

    def topics(self) -> Iterator[str]:
        """Yields the topics that serving builds read, and the topics that sinks send to."""
        for birth in self.births:
            yield from (each["name"] for each in birth["topics"])
            yield from (each["topic"] for each in birth.get("sinks", ()))

    def alerts(self) -> Iterator[str]:
        """Yields the alerts of serving builds."""
        for birth in self.births:
            yield from (each["name"] for each in birth.get("alerts", ()))


def read_names(root: Path) -> RootNames:
    """Reads the names in a root's folder. Files that cannot be read contribute no names."""
    serving: dict[str, str] | None = None
    generation, rollouts = 0, []
    for path in sorted((root / "journal").glob("*.json"), reverse=True)[:_RECORDS]:
        event = (_document(path) or {}).get("event", {})
        if serving is None and "serving" in event:
            serving, generation = event["serving"], event["generation"]
        if event.get("kind") == "staged":
            rollouts.append((int(path.stem), str(event["pipeline"])))
    found = serving or {}
    births = (_document(root / "builds" / build / "birth.json") for build in found.values())
    return RootNames(
        found,
        generation,
        tuple(rollouts),
        tuple(sorted(each.name for each in (root / "builds").glob("*"))),
        tuple(each for each in births if each is not None),
    )


def read_token_names(root: Path) -> list[str]:
    """Returns the names of the tokens in a root's folder: none if the file cannot be read."""
    stored = (_document(root / "access" / "tokens.json") or {}).get("tokens", ())
    return sorted(str(each["name"]) for each in stored)


def _document(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
