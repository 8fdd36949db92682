"""Risks: what would be lost with one broker of the cluster."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from kappa.base.errors import KappaError
from replay.preflight.finding import Finding
from replay.preflight.replication import replication

if TYPE_CHECKING:
    from kappa.log.client import Log


def risks(log: Log, topics: Collection[str]) -> tuple[Finding, ...]:
    """Returns what the loss of one broker would take of these topics, or stop."""
    brokers, there = log.brokers(), log.topics()
    found = list[Finding]()
    for name in sorted(topics):
        if name in there:
            try:
                config = log.config(name)
            except KappaError:
                # A client that may read a topic need not be allowed to read its settings.
                config = None
            found += replication(name, brokers, there[name].replicas, config)
    return tuple(found)
