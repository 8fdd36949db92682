"""The notifier: a thread of the supervisor that sends notices about the platform to people.

The notices are sent to the address `to` in the settings `[notify]`. The notifier sends a notice if
a rollout has failed or waits for an approval, if a job has stopped for good or dies repeatedly, if
a proof has found rows that differ from the tables, if events drift, or if the disk is full. The
notifier reads the journal, the supervisor's report and the files of builds. Notices are delivered
like alerts: at least once, even if processes die. Each event in the journal causes at most one
notice. A state causes a notice when the state begins, and again if it ends and begins again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

from msgspec import DecodeError, Struct
from msgspec.json import decode, encode

from kappa.base.errors import KappaError
from kappa.base.settings import Settings
from kappa.declare.alert import KAPPA, AlertBirth, ensure_address
from kappa.replay.platform.messages import warning
from kappa.replay.rollout.current_state import current_state
from kappa.replay.rollout.state import State
from kappa.replay.rollout.supervisor_report import read_supervisor_report
from kappa.replay.status.facts import (
    crashing_job,
    differing_proof,
    drifted_topic,
    failed_rollout,
    full_disk,
    stopped_job,
    waiting_rollout,
)
from kappa.serving.outlets.alerts.channels import channel_of
from kappa.serving.outlets.alerts.delivery import Rules
from kappa.serving.outlets.alerts.notices import Notice, NoticeDelivery
from kappa.state.build_status import read_stopped
from kappa.state.disk_space import why_jobs_rest
from kappa.state.drift import read_drifts
from kappa.state.journal.events import Failed, Proved
from kappa.state.journal.journal import JournalRecord, JournalView
from kappa.state.root import own_root
from kappa.state.store import Store

_LOOK_SECONDS = 2.0
# After an error: a full disk and a bucket that is away go on for a while.
_AGAIN_SECONDS = 10.0
_PATIENCE_SECONDS = 5.0
# A job that has died so often in a row will die again. One death may be the machine's.
_DEATHS = 3


class NoticePlace(Struct, frozen=True):
    """The progress of the notifier: the last processed journal record, and the reported states."""

    record: int = 0
    open: tuple[str, ...] = ()


class Notifier:
    """The thread that delivers notices. It runs only if `notify.to` is set."""

    def __init__(self, store: Store, settings: Settings, *, say: Callable[[str], None]) -> None:
        """Creates a notifier that does not run yet. `say` prints a message for the operator.

        Raises DeclarationError if `notify.to` is not an address.
        """
        to = settings.notify.to
        if to:
            ensure_address("notify.to of kappa.toml", to)
        self._store = store
        self._settings = settings
        self._say = say
        self._stop = threading.Event()
        self._told = ""
        self._thread = threading.Thread(target=self._run, name="notifier", daemon=True)
        self._is_wanted = bool(to)

    def start(self) -> None:
        """Starts the thread, unless `notify.to` is empty or the root may not send."""
        root = own_root(self._store)
        if self._is_wanted and (root is None or root.sends):
            self._thread.start()

    def end(self) -> None:
        """Ends the thread. If a message is being sent, waits at most five seconds for it."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_PATIENCE_SECONDS)

    def _run(self) -> None:
        store, alerts = self._store, self._settings.alerts
        reserve = self._settings.reserve_bytes
        channel = channel_of(store, alerts, AlertBirth(KAPPA, "", self._settings.notify.to))
        delivery: NoticeDelivery | None = None
        while not self._stop.is_set():
            try:
                if delivery is None:
                    delivery = NoticeDelivery(
                        store,
                        channel,
                        Rules.of(alerts),
                        lambda place: notices_since(store, reserve, place),
                    )
                due = delivery.take_step()
                wait = _LOOK_SECONDS if due is None else min(due, _LOOK_SECONDS)
            except (KappaError, OSError) as error:
                if str(error) != self._told:
                    self._told = str(error)
                    with suppress(OSError):
                        self._say(warning(f"notices wait: {error}"))
                wait = _AGAIN_SECONDS
            self._stop.wait(wait)


def notices_since(store: Store, reserve: int, place: str | None) -> tuple[str, tuple[Notice, ...]]:
    """Returns the present place, and the notices for all facts since an earlier place.

    A place says up to where the notifier has worked: it is a `NoticePlace` as JSON. If `place` is
    None, there are only notices for present states, and none for past events. `reserve` is the
    number of bytes that the supervisor keeps free on the disk.
    """
    known = _parsed_place(place)
    state = current_state(store)
    records = JournalView(store).records(after=0 if known is None else known.record)
    last = records[-1].number if records else 0 if known is None else known.record
    events = () if known is None else tuple(_events_in(records, state))
    present = tuple(_present_states(store, state, reserve))
    told = frozenset(() if known is None else known.open)
    now = NoticePlace(last, tuple(each.key for each in present))
    new = tuple(each for each in present if each.key not in told)
    return encode(now).decode(), (*events, *new)


def _parsed_place(place: str | None) -> NoticePlace | None:
    try:
        return None if place is None else decode(place, type=NoticePlace)
    except DecodeError:
        return None


def _events_in(records: tuple[JournalRecord, ...], state: State) -> Iterator[Notice]:
    for record in records:
        key = f"record {record.number}"
        match record.event:
            case Failed(rollout=id_, reason=reason, hint=hint):
                # The record may be newer than the state.
                failed = replace(state.rollout(id_), reason=reason, hint=hint)
                yield Notice(key, *failed_rollout(failed))
            case Proved(pipeline=pipeline, build=build, equal=False):
                yield Notice(key, *differing_proof(pipeline, build))


def _present_states(store: Store, state: State, reserve: int) -> Iterator[Notice]:
    """Yields a notice for each present state that a person should resolve."""
    for rollout in state.active_rollouts:
        if rollout.waits:
            yield Notice(f"rollout {rollout.id} waits", *waiting_rollout(rollout))
    pipelines = {build: pipeline for pipeline, build in {**state.idle, **state.serving}.items()}
    # The rollout of a candidate whose job stops has failed, which was told.
    for build in sorted(pipelines):
        stopped = read_stopped(store, state.folded_by(build))
        if stopped is not None:
            key = f"build {build} stopped at {stopped.at}"
            yield Notice(key, *stopped_job(pipelines[build], build, stopped))
    for build, deaths in sorted(read_supervisor_report(store).deaths.items()):
        if deaths.count >= _DEATHS:
            fact = crashing_job(state.pipelines.get(build, ""), build, deaths.text(build))
            yield Notice(f"build {build} crashes", *fact)
    for pipeline, build in sorted(state.serving.items()):
        for drift in read_drifts(store, state.folded_by(build)):
            yield Notice(
                f"drift of {pipeline}: {' '.join(drift.key)}",
                *drifted_topic(pipeline, build, drift),
                proof=f"{drift.proof}: {drift.value}" if drift.proof else "",
            )
    if why := why_jobs_rest(store, reserve):
        yield Notice("disk", *full_disk(why))
