"""The settings that a topic itself has at the broker, and changes to settings."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported, but not by name
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from kappa.kafka.cluster import Cluster, ensure_not_kafkas_own


def own_config(log: Cluster, topic: str) -> dict[str, str]:
    """Returns the settings that a topic itself has; all others are the broker's defaults."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    entries = log.answers.of(
        log.admin.describe_configs([resource])[resource],
        f"the settings of topic {topic} could not be read",
    )
    return {
        str(name): str(entry.value)
        for name, entry in entries.items()
        if ConfigSource(entry.source) is ConfigSource.DYNAMIC_TOPIC_CONFIG
    }


def set_config(log: Cluster, topic: str, config: Mapping[str, str]) -> None:
    """Sets some settings of a topic; others stay. Raises KappaError for a refused setting."""
    ensure_not_kafkas_own(topic)
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in config.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    log.answers.of(
        log.admin.incremental_alter_configs([resource])[resource],
        f"the settings of topic {topic} could not be set",
    )
