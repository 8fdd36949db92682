"""The facts that a list of topics shows: each topic's size, retention and newest record time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kappa.base.units import size
from kappa.kafka.broker.broker import partition_bytes
from kappa.serving.http.page.formatting import duration
from kappa.state.store import Store

if TYPE_CHECKING:
    from kappa.kafka.client import Log


@dataclass(frozen=True, slots=True)
class TopicDetails:
    """A topic's retention in words, its size on disk in bytes, and the time of its newest record.

    `bytes` is None if the project uses an external cluster. `newest_at` is None for an empty topic.
    """

    retention: str
    bytes: int | None
    newest_at: datetime | None


def observe_details(
    log: Log, names: Iterable[str], store: Store, *, runs_broker: bool
) -> Mapping[str, TopicDetails]:
    """Returns the details of the topics that are on the broker, by topic.

    `runs_broker` is True if the project runs the embedded broker. Only then are sizes known,
    because they are read from the broker's files.
    """
    there = log.topics()
    wanted = [name for name in names if name in there]
    configs, newest = log.configs(wanted), log.newest_times(wanted)
    sizes = partition_bytes(store.local.folder, wanted) if runs_broker else {}
    return {
        name: TopicDetails(
            retention_text(configs[name]),
            sum(sizes[name].values()) if name in sizes else None,
            datetime.fromtimestamp(newest[name] / 1000, UTC) if name in newest else None,
        )
        for name in wanted
    }


def retention_text(config: Mapping[str, str]) -> str:
    """Formats in a few words how long a topic keeps its records, by its settings. Pure."""
    if config.get("cleanup.policy") == "compact":
        return "latest by key"
    words = ["latest by key"] if "compact" in config.get("cleanup.policy", "") else []
    time, most = int(config.get("retention.ms", "-1")), int(config.get("retention.bytes", "-1"))
    if time >= 0:
        words.append(duration(time / 1000))
    if most >= 0:
        words.append(f"{size(most)} a partition")
    return ", ".join(words) or "for ever"
