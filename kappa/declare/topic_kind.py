"""The kind of a topic, which decides what Kafka keeps of it."""

from __future__ import annotations

from enum import StrEnum


class TopicKind(StrEnum):
    """The kind of a topic: Kafka keeps the whole history, or the latest value of each key."""

    RETAINED = "retained"
    COMPACTED = "compacted"
