"""The settings that a declared topic has at the broker. Pure."""

from __future__ import annotations

from kappa.declare.log_time import BROKERS_TIME, TIMESTAMP_TYPE
from kappa.declare.topic import Topic


def declared_config(topic: Topic, *, brokers_time: bool = False) -> dict[str, str]:
    """Returns the settings that a declared topic is made with; `brokers_time` as for `create`."""
    config = {
        "retention.ms": "-1",
        "cleanup.policy": "compact" if topic.kind == "compacted" else "delete",
        **topic.config,
    }
    if brokers_time or topic.needs_brokers_time:
        config[TIMESTAMP_TYPE] = BROKERS_TIME
    return config
