"""The names in a root, for completion in a shell: pipelines, builds, tables, topics, alerts.

A shell requests the names each time the TAB key is pressed. Importing the modules that open a root
would take too long for that. So this module reads the root's files with the standard library only.
It does not check whether files are damaged: a wrong name only completes a word, and the command
then refuses the word. For a root in a bucket, no names are found.
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
    """The names in a root, and the certificates from which names are read.

    `serving` maps pipelines to their serving builds, and `births` contains the birth certificates
    of these builds as JSON objects. `rollouts` contains (id, pipeline) pairs, the newest first.
    `builds` contains the ids of all builds.
    """

    serving: dict[str, str] = field(default_factory=dict)
    generation: int = 0
    rollouts: tuple[tuple[int, str], ...] = ()
    builds: tuple[str, ...] = ()
    births: tuple[dict[str, Any], ...] = ()

    def tables(self) -> Iterator[tuple[str, str]]:
        """Yields (name, pipeline) for each table and view that is served."""
        for birth in self.births:
            for name in (*(each["name"] for each in birth["tables"]), *birth["views"]):
                yield name, birth["pipeline"]

    def topics(self) -> Iterator[str]:
        """Yields the names of the topics that serving builds read or to which their sinks write."""
        for birth in self.births:
            yield from (each["name"] for each in birth["topics"])
            yield from (each["topic"] for each in birth.get("sinks", ()))

    def alerts(self) -> Iterator[str]:
        """Yields the names of the alerts of serving builds."""
        for birth in self.births:
            yield from (each["name"] for each in birth.get("alerts", ()))


def read_names(root: Path) -> RootNames:
    """Reads the names from a root's folder. Files that cannot be read are skipped.

    Only the newest 200 records of the journal are read.
    """
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
    """Returns the names of the tokens in a root's folder, or [] if the names cannot be read."""
    stored = (_document(root / "access" / "tokens.json") or {}).get("tokens", ())
    return sorted(str(each["name"]) for each in stored)


def _document(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
