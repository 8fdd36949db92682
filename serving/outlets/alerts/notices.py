"""Notices: messages about the platform itself, delivered like the messages of an alert.

Notices belong to an alert named `kappa`, and no pipeline may give another alert that name. The
alert `kappa` has the same settings as other alerts. This module delivers notices;
replay/platform/notifier.py finds the facts to report.
"""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Callable

from msgspec import Struct

from kappa.declare.alert import KAPPA
from kappa.serving.outlets.alerts.channels import Channel
from kappa.serving.outlets.alerts.delivery import MessageDelivery, Rules
from kappa.serving.outlets.alerts.message import Message, time_as_text
from kappa.serving.outlets.alerts.outbox import Outbox
from kappa.state.store import Store


class Notice(Struct, frozen=True, omit_defaults=True):
    """A fact about the platform that an operator should know.

    `key` identifies the fact: the key is the same for the same fact, and different for any other
    fact. `kind` is a word for programs, such as `rollout_failed`. `text` is a sentence, and `hint`
    says what to do next. `rollout` is the number of a rollout as commands show it. `proof` is the
    record or the value that shows the fact.
    """

    key: str
    kind: str
    text: str
    hint: str = ""
    pipeline: str = ""
    build: str = ""
    rollout: int | None = None
    proof: str = ""


# Takes the place up to which facts were told, or None at the first look. Returns the new place, and
# the facts in between.
Look = Callable[[str | None], tuple[str, tuple[Notice, ...]]]


class NoticeDelivery(MessageDelivery):
    """The delivery of notices, step by step.

    The object may be used by only one process, and by one thread at a time.
    """

    def __init__(
        self,
        store: Store,
        channel: Channel,
        rules: Rules,
        look: Look,
        *,
        clock: Callable[[], float] = time.time,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """Reads the stored documents of the notices, to continue from their state.

        The function `look` finds the facts to report. Its argument is the place up to which facts
        were reported, or None. `look` returns the new place, and the notices about the facts since
        the old place.
        """
        super().__init__(store, KAPPA, channel, rules, clock=clock, draw=draw)
        self._look = look

    def take_messages(self) -> None:
        """Puts a message into the outbox for each fact that is new since the last outbox."""
        before = self._outbox
        place, notices = self._look(None if before is None else before.cursor)
        if before is None or place != before.cursor:
            now = self._clock()
            number = 1 + (self._progress.outbox if before is None else before.number)
            messages = tuple(notice_message(each, now) for each in notices)
            missed = None if before is None else before.missed
            self.put_outbox(Outbox(number, place, now, messages, missed))


def notice_message(notice: Notice, now: float) -> Message:
    """Creates the message of a notice.

    The message's id is derived from the notice and the time `now`, in seconds since 1970.
    """
    named = json.dumps([KAPPA, notice.key, time_as_text(now)])
    id_ = f"msg_{hashlib.sha256(named.encode()).hexdigest()[:32]}"
    told = {
        name: value
        for name in Notice.__struct_fields__
        if name not in {"key", "kind"} and (value := getattr(notice, name)) not in {"", None}
    }
    body = {"alert": KAPPA, "id": id_, "op": notice.kind, **told, "at": time_as_text(now)}
    return Message(id_, json.dumps(body, ensure_ascii=False))
