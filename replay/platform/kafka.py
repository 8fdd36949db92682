"""Runs the embedded broker of a platform, or connects to the configured cluster.

Only the supervisor uses this module. If the embedded broker dies, a new broker process is started
on the same data, at the same port if that port is free.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from kappa.base.errors import Unreachable
from kappa.base.java.jars import ensure_jars
from kappa.base.java.java import find_java
from kappa.base.settings import Settings
from kappa.kafka.broker.broker import Broker
from kappa.kafka.client import Log, TopicFacts
from kappa.kafka.client_options import client_options
from kappa.replay.platform.child import BackOff
from kappa.replay.platform.messages import warning
from kappa.replay.platform.stop_request import StopRequest
from kappa.state.offsets import Offsets
from kappa.state.store import Store

_EXTERNAL_BROKER_SECONDS = 15.0


class PlatformKafka:
    """The embedded broker or the cluster, with the client methods that the controller needs."""

    def __init__(
        self, settings: Settings, store: Store, say: Callable[[str], None], stop: StopRequest
    ) -> None:
        self._settings = settings
        self._store = store
        self._say = say
        self._stop = stop
        self._broker: Broker | None = None
        self._log: Log | None = None
        self._begun_at = 0.0
        self._back_off = BackOff()

    @property
    def bootstrap_servers(self) -> str:
        """Returns the broker's address. Call `ensure_running` before."""
        return self._client.bootstrap_servers

    def ensure_running(self, *, has_space: bool = True) -> None:
        """Starts the embedded broker unless it runs, or waits until the external cluster answers.

        A broker that has died is not started while the disk is full. The wait before the next start
        grows with each start. Raises KappaError if the broker cannot run or the cluster does not
        answer.
        """
        if self._settings.runs_broker:
            self._ensure_own(has_space=has_space)
        elif self._log is None:
            servers = self._settings.kafka.bootstrap_servers or ""
            log = Log(servers, client_options(self._settings))
            with self._stop.may_interrupt():
                there = log.wait_until_ready(_EXTERNAL_BROKER_SECONDS)
            if not there:
                raise Unreachable(
                    f"no Kafka broker answers at {servers}",
                    hint="start it, or see kafka.bootstrap_servers in kappa.toml: without it, "
                    "kappa runs a broker of its own",
                )
            self._log = log

    def stop_broker(self) -> None:
        """Ends the embedded broker, if there is one."""
        if self._broker is not None:
            self._broker.stop()

    def end(self, topics: Iterable[str]) -> Offsets:
        """Returns the end offsets of these topics, for readers of committed records."""
        return self._client.end(topics)

    def facts(self, name: str) -> TopicFacts | None:
        """Returns the facts about a topic, or None if the broker has no topic of that name."""
        return self._client.facts(name)

    def config(self, name: str) -> Mapping[str, str]:
        """Returns all settings of a topic that are in force."""
        return self._client.config(name)

    @property
    def _client(self) -> Log:
        assert self._log is not None, "it was started"
        return self._log

    def _ensure_own(self, *, has_space: bool) -> None:
        if self._broker is not None and (self._broker.alive() or not has_space):
            return
        if time.monotonic() < self._back_off.not_before:
            return
        if self._broker is not None:
            self._say(warning("the broker has died, and is started again"))
        # Each start counts as a death to come; the death of a broker that ran well is forgotten.
        now = time.monotonic()
        self._back_off = self._back_off.after_death(ran_seconds=now - self._begun_at, now=now)
        self._begun_at = now
        java = find_java()
        with self._stop.may_interrupt():
            jars = ensure_jars(
                java, cache=self._settings.jars.cache, repository=self._settings.jars.repository
            )
            self._say("the broker starts")
            self._broker = Broker.start(
                self._store.folder,
                jars,
                java,
                heap=self._settings.kafka.heap,
                syncs=self._settings.syncs,
            )
        self._log = Log(self._broker.bootstrap_servers, client_options(self._settings))
        self._say(f"the broker runs, process {self._broker.pid}")
