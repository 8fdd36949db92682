"""The ports of the controller: what it needs of Kafka and of the child processes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from kappa.state.build_status import Stopped
from kappa.state.offsets import Offsets

if TYPE_CHECKING:
    from kappa.kafka.cluster import TopicFacts


class LogView(Protocol):
    """The part of Kafka that the controller needs (kappa/kafka has it)."""

    def end(self, topics: Iterable[str]) -> Offsets:
        """Returns the end of these topics for readers of committed records."""

    def facts(self, name: str) -> TopicFacts | None:
        """Returns one topic. None if the broker has none of that name."""


class Workers(Protocol):
    """The child processes that the controller needs (processes.py has them)."""

    def job_runs(self, build: str) -> bool:
        """Returns True while a process of the build's job exists."""

    def job_stopped(self, build: str) -> Stopped | None:
        """Returns why the build's job is not started again."""

    def job_deaths(self, build: str) -> int:
        """Counts the deaths in a row of the build's job."""

    def ensure_aligned_again(self, build: str) -> None:
        """Aligns a build that tails, and lets its tail continue then."""

    def ensure_verifying(self, rollout: int) -> str | None:
        """Starts a verification unless it runs.

        Returns why it is not started again if it has died too often.
        """
