"""Fixtures of the tests of the collector."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from collecting import EVENT

from kappa import Topic
from kappa.kafka.client import Log


@pytest.fixture
def topic(log: Log, topic_name: str) -> Iterator[str]:
    """A topic of events; files that need another one have a fixture of this name."""
    log.create(Topic(topic_name, event=EVENT, partitions=3))
    yield topic_name
    log.delete(topic_name)
