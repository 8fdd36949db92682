"""Options of a broker and of its topics, set as an administrator sets them."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

# A segment is rolled by the next record after a moment, and cleaned as soon as it is rolled.
_EAGER = {"segment.ms": "100", "min.cleanable.dirty.ratio": "0.0001", "min.compaction.lag.ms": "0"}
# The cleaner looks for work every 15 s otherwise.
_AT_ONCE = {"log.cleaner.backoff.ms": "100"}


def set_topic_options(bootstrap_servers: str, topic: str, options: Mapping[str, str]) -> None:
    _set(bootstrap_servers, ResourceType.TOPIC, topic, options)


def clean_eagerly(bootstrap_servers: str, topic: str) -> None:
    """Makes the broker compact all but the newest records of a topic at once."""
    set_topic_options(bootstrap_servers, topic, _EAGER)
    _set(bootstrap_servers, ResourceType.BROKER, "1", _AT_ONCE)


def _set(bootstrap_servers: str, kind: ResourceType, name: str, options: Mapping[str, str]) -> None:
    entries = [
        ConfigEntry(each, value, incremental_operation=AlterConfigOpType.SET)
        for each, value in options.items()
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(30)
