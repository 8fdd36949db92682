"""The project of a command: its settings, root and pipelines, and the connection to the broker.

Each of these is read and imported when a command first needs it. So a query loads none of the
user's files, and does not check whether a supervisor is up. This module makes no decision and
changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from kappa.base.errors import Unreachable, UsageError

if TYPE_CHECKING:
    from kappa.base.settings import Settings
    from kappa.code.project import LoadedProject
    from kappa.declare.pipeline import Pipeline
    from kappa.declare.topic import Topic
    from kappa.kafka.client import Log
    from kappa.replay.rollout.state import State
    from kappa.replay.status.run_records import Running
    from kappa.state.store import Store


# ruff: noqa: PLC0415  # a command imports what it needs and nothing else: see kappa/commands/__init__.py


_PATIENCE_SECONDS = 2.0


class ProjectContext:
    """The settings, the root and the broker of a command, each determined on first use."""

    def __init__(self, project: Path | None, root: str | None) -> None:
        """Stores the values of the flags `--project` and `--root`."""
        self._project = project
        self._root = root

    @property
    def root_flag(self) -> str | None:
        """Returns the root that the flag `--root` names, or None if the flag is not given."""
        return self._root

    @property
    def start(self) -> Path:
        """Returns the folder where the search for the project begins.

        This is the folder of `--project`, or the current folder. Raises UsageError if the folder of
        `--project` does not exist.
        """
        if self._project is not None and not self._project.is_dir():
            raise UsageError(
                f"there is no folder {self._project}",
                hint="give --project the folder that holds kappa.toml",
            )
        return self._project or Path()

    @cached_property
    def settings(self) -> Settings:
        """Returns the project's settings."""
        from kappa.base.settings import load_settings

        return load_settings(self.start, root=self._root)

    @cached_property
    def store(self) -> Store:
        """Returns the store of all files below the root."""
        from kappa.state.store import open_store

        return open_store(self.settings)

    @cached_property
    def pipelines(self) -> Mapping[str, Pipeline]:
        """Returns the pipelines that the project declares."""
        from kappa.code.project import load_pipelines

        return load_pipelines(self.settings.project)

    @cached_property
    def loadable(self) -> LoadedProject:
        """Returns the project's files for commands on topics.

        The result contains the files that can be loaded, and the errors of all other files. A
        pattern that no topic has joined has no topics; this is not an error here.
        """
        from kappa.code.project import load_files
        from kappa.declare.topic_patterns import NothingJoined, before_joining

        with before_joining(NothingJoined):
            return load_files(self.settings.project)

    @property
    def topic_readers(self) -> Mapping[str, Pipeline]:
        """Returns the declared pipelines, by name, for commands on topics.

        A pattern may have no topics yet. Raises an error if a file cannot be loaded.
        """
        self.loadable.ensure_loaded()
        return self.loadable.pipelines

    @property
    def topics(self) -> dict[str, Topic]:
        """Returns the declared topics, and the topics that have joined a pattern, by name.

        Raises an error if a file cannot be loaded.
        """
        return _topics_of(self.topic_readers)

    def declared_topic(self, name: str) -> Topic | None:
        """Returns the declared topic with a name, or None if no file declares the topic.

        If no loadable file declares the topic and some files cannot be loaded, raises the error of
        such a file instead, because it might declare the topic.
        """
        found = self.loadable_topics.get(name)
        if found is None:
            self.loadable.ensure_loaded()
        return found

    @property
    def loadable_topics(self) -> dict[str, Topic]:
        """Returns the topics of the files that can be loaded, for commands that change nothing."""
        return _topics_of(self.loadable.pipelines)

    @property
    def running(self) -> Running | None:
        """Returns the running supervisor, or None if no supervisor is up."""
        from kappa.replay.status.run_records import running

        return running(self.settings)

    @property
    def http(self) -> str | None:
        """Returns the URL of the HTTP server, or None if no server runs."""
        from kappa.replay.status.run_records import served_at

        return served_at(self.store)

    @property
    def lease_seconds(self) -> float:
        """Returns the duration of a reader's lease, in seconds."""
        return self.settings.rollout.lease_seconds

    @property
    def bootstrap_servers(self) -> str | None:
        """Returns the address of Kafka, or None if the address is not known.

        This is the address of the configured cluster, or of the embedded broker while the
        supervisor is up.
        """
        if self.settings.kafka.bootstrap_servers:
            return self.settings.kafka.bootstrap_servers
        # Read once: a supervisor that ends between two readings must not raise an AttributeError.
        running = self.running
        return None if running is None else running.bootstrap_servers

    def state(self) -> State:
        """Returns the current state, computed from the journal."""
        from kappa.replay.rollout.current_state import current_state

        return current_state(self.store)

    def log(self, *, looks: bool = False) -> Log:
        """Returns a Kafka client. Raises Unreachable if no broker is known.

        With `looks`, the client is for a command that only displays facts: its requests fail within
        seconds if no broker answers.
        """
        from kappa.kafka.broker_requests import LOOKING_SECONDS
        from kappa.kafka.client import Log
        from kappa.kafka.client_options import client_options
        from kappa.kafka.stored_schemas import open_registry

        servers = self.bootstrap_servers
        if servers is None:
            raise Unreachable(
                "kappa is not up: topics cannot be read", hint="start it with: kappa up -d"
            )
        # A command decodes samples of the log, and a person waits for the command.
        open_registry(self.settings, self.store, patience_seconds=_PATIENCE_SECONDS)
        return Log(
            servers,
            client_options(self.settings),
            patience_seconds=LOOKING_SECONDS if looks else None,
        )

    def must_run(self) -> None:
        """Raises Unreachable if no supervisor is up, and Copied if the root is a copy."""
        from kappa.state.root import ensure_no_copy

        ensure_no_copy(self.store)
        if self.running is None:
            raise Unreachable("kappa is not up", hint="start it with: kappa up -d")


def _topics_of(pipelines: Mapping[str, Pipeline]) -> dict[str, Topic]:
    return {topic.name: topic for pipeline in pipelines.values() for topic in pipeline.topics}
