"""The names in a root: pipelines, builds, rollouts, generations, tables, topics, alerts.

A shell asks for names at each press of the TAB key. The modules that open a root take longer to
import than such an answer may take. So this module reads files with the standard library alone. It
does not check seals: a wrong name only completes a word, and the command then refuses the word. For
a root in a bucket, there are no names.
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
    """The names in a root. `rollouts` contains (id, pipeline) pairs, the newest first."""

    serving: dict[str, str] = field(default_factory=dict)
    generation: int = 0
    rollouts: tuple[tuple[int, str], ...] = ()
    builds: tuple[str, ...] = ()
    births: tuple[dict[str, Any], ...] = ()

    def tables(self) -> Iterator[tuple[str, str]]:
        """Yields the name of each served table and view, with its pipeline."""
        for birth in self.births:
            for name in (*(each["name"] for each in birth["tables"]), *birth["views"]):
                yield name, birth["pipeline"]

    def topics(self) -> Iterator[str]:
        """Yields the names of the topics that serving builds read and that their sinks write."""
        for birth in self.births:
            yield from (each["name"] for each in birth["topics"])
            yield from (each["topic"] for each in birth.get("sinks", ()))

    def alerts(self) -> Iterator[str]:
        """Yields the names of the alerts of serving builds."""
        for birth in self.births:
            yield from (each["name"] for each in birth.get("alerts", ()))


def read_names(root: Path) -> RootNames:
    """Reads the names from the folder of a root. Files that cannot be read are skipped."""
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
    """Returns the names of the tokens in a root's folder; an empty list if they cannot be read."""
    stored = (_document(root / "access" / "tokens.json") or {}).get("tokens", ())
    return sorted(str(each["name"]) for each in stored)


def _document(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
