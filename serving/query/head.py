"""The head of an answer: the snapshot of its rows. The same for CLI and HTTP. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kappa.serving.query.pin.at_log import log_time
from kappa.serving.query.pin.past import time_text
from kappa.serving.query.pin.snapshot import Snapshot


def head_of(snapshot: Snapshot) -> Mapping[str, Any]:
    """Describes a snapshot: its generation, and each pipeline's build, offsets and versions.

    `shown_at` is since when readers saw it; `log_time` the latest in the log up to there.
    """
    frontiers = snapshot.frontiers
    builds = {
        pipeline: {
            "build": build,
            "shown_at": frontiers[build].published_at,
            "log_time": None if (at := log_time(frontiers[build])) is None else time_text(at),
            "offsets": frontiers[build].offsets.plain(),
            "versions": frontiers[build].versions,
        }
        for pipeline, build in snapshot.serving.items()
    }
    return {"generation": snapshot.generation, "builds": builds}


def columns_of(names: Iterable[str], types: Iterable[str]) -> list[dict[str, str]]:
    """Describes an answer's columns: a name and DuckDB's type each."""
    return [{"name": name, "type": kind} for name, kind in zip(names, types, strict=True)]
