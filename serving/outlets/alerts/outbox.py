"""The documents of an alert: its outbox, its progress, and its dead letters.

The outbox has the messages of one change set, and the cursor at which the next one begins: so one
put both takes a change set and lets go of the one before. The progress may be lost, as by a power
loss: then the messages of the outbox are sent again. An outbox that cannot be read is moved aside,
and the alert has missed what followed.
"""

from __future__ import annotations

from msgspec import Struct

from kappa.base.errors import UsageError, did_you_mean
from kappa.base.failpoint import failpoint
from kappa.serving.outlets.alerts.message import Message
from kappa.state.documents import Documents
from kappa.state.root import ensure_no_copy
from kappa.state.store import Store

_ALERTS = "alerts"
# So many messages of an alert are on the page.
MOST_SHOWN = 50


class Missed(Struct, frozen=True):
    """A span of time (seconds since 1970) whose changes are not known any more."""

    since: float
    until: float


class Outbox(Struct, frozen=True):
    """The messages of a change set, taken at a time (seconds since 1970), and its cursor.

    `missed` is the last span of time that the alert knows nothing of.
    """

    number: int
    cursor: str
    at: float
    messages: tuple[Message, ...] = ()
    missed: Missed | None = None
    format: int = 1


class AlertProgress(Struct, frozen=True):
    """The progress in an outbox, by its number: how many of its messages are settled.

    `tries` and the two times after it are of the next message. `delivered` counts all messages of
    the alert that were received, and `error` is the reason of the last failure since.
    """

    outbox: int = 0
    settled: int = 0
    tries: int = 0
    first_tried_at: float = 0.0
    next_try_at: float = 0.0
    delivered: int = 0
    delivered_at: float | None = None
    error: str = ""
    format: int = 1


class DeadLetter(Struct, frozen=True):
    """A message that was given up at a time, after so many tries, and why."""

    message: Message
    reason: str
    tries: int
    at: str
    format: int = 1


class ShownMessages(Struct, frozen=True):
    """The last messages of an alert, the newest first."""

    messages: tuple[Message, ...] = ()
    format: int = 1


class _Again(Struct, frozen=True):
    """The wish to send a dead letter again."""

    format: int = 1


_OUTBOX = Documents(Outbox, derived=True)
_PROGRESS = Documents(AlertProgress, derived=True, synced=False)
_DEAD = Documents(DeadLetter, derived=True)
_SHOWN = Documents(ShownMessages, derived=True)
_AGAIN = Documents(_Again, derived=True)


def folder(name: str) -> str:
    """Returns the folder of an alert below the root."""
    return f"{_ALERTS}/{name}"


def alert_names(store: Store) -> tuple[str, ...]:
    """Returns the names of all alerts that have documents."""
    return tuple(sorted({name.split("/")[1] for name in store.names(_ALERTS)}))


def read_outbox(store: Store, name: str) -> Outbox | None:
    """Returns the outbox of an alert, or None if it has taken no change set yet."""
    return _OUTBOX.get(store, f"{folder(name)}/outbox.json", f"the outbox of alert {name}")


def put_outbox(store: Store, name: str, outbox: Outbox) -> None:
    """Puts an outbox, in place of one whose messages are all settled."""
    failpoint("alert.before_take")
    _OUTBOX.put(store, f"{folder(name)}/outbox.json", outbox)
    failpoint("alert.after_take")


def read_progress(store: Store, name: str) -> AlertProgress:
    """Returns the progress of an alert."""
    found = _PROGRESS.get(store, f"{folder(name)}/progress.json", f"the progress of alert {name}")
    return AlertProgress() if found is None else found


def put_progress(store: Store, name: str, progress: AlertProgress) -> None:
    """Puts the progress of an alert."""
    failpoint("alert.before_settle")
    _PROGRESS.put(store, f"{folder(name)}/progress.json", progress)
    failpoint("alert.after_settle")


def dead_letters(store: Store, name: str) -> tuple[DeadLetter, ...]:
    """Returns the dead letters of an alert, the oldest first."""
    ids = (_id(each) for each in store.names(f"{folder(name)}/dead"))
    found = (read_dead_letter(store, name, id_) for id_ in ids)
    return tuple(sorted((each for each in found if each is not None), key=lambda each: each.at))


def read_dead_letter(store: Store, name: str, id_: str) -> DeadLetter | None:
    """Returns a dead letter by its message's id, or None if there is none."""
    return _DEAD.get(store, _dead_name(name, id_), f"dead letter {id_} of alert {name}")


def put_dead_letter(store: Store, name: str, letter: DeadLetter) -> None:
    """Puts a dead letter."""
    failpoint("alert.before_give_up")
    _DEAD.put(store, _dead_name(name, letter.message.id), letter)
    failpoint("alert.after_give_up")


def delete_dead_letter(store: Store, name: str, id_: str) -> None:
    """Deletes a dead letter that was received."""
    failpoint("alert.before_delete")
    store.delete(_dead_name(name, id_))
    failpoint("alert.after_delete")


def shown_messages(store: Store, name: str) -> tuple[Message, ...]:
    """Returns the messages of an alert that the page shows, the newest first."""
    found = _SHOWN.get(store, f"{folder(name)}/shown.json", f"the messages of alert {name}")
    return () if found is None else found.messages


def show_message(store: Store, name: str, message: Message) -> None:
    """Puts a message on top of the messages of an alert that the page shows, once."""
    there = shown_messages(store, name)
    if all(each.id != message.id for each in there):
        shown = ShownMessages((message, *there)[:MOST_SHOWN])
        _SHOWN.put(store, f"{folder(name)}/shown.json", shown)


def ask_again(store: Store, name: str, id_: str) -> None:
    """Asks for a dead letter to be sent again, once."""
    _AGAIN.put(store, _again_name(name, id_), _Again())


def asked_again(store: Store, name: str) -> tuple[str, ...]:
    """Returns the ids of the dead letters that are to be sent again."""
    return tuple(_id(each) for each in store.names(f"{folder(name)}/again"))


def settle_asked(store: Store, name: str, id_: str) -> None:
    """Deletes the wish for a dead letter, which was tried."""
    failpoint("alert.before_answer")
    store.delete(_again_name(name, id_))
    failpoint("alert.after_answer")


def _dead_name(name: str, id_: str) -> str:
    return f"{folder(name)}/dead/{id_}.json"


def _again_name(name: str, id_: str) -> str:
    return f"{folder(name)}/again/{id_}.json"


def _id(path: str) -> str:
    return path.rsplit("/", 1)[-1].removesuffix(".json")


_LIST_DEAD = "kappa alerts list --dead lists the dead letters"


def ask_for_dead_letters(
    store: Store, name: str | None = None, id_: str | None = None
) -> tuple[tuple[str, DeadLetter], ...]:
    """Asks for dead letters to be sent again: all, those of an alert, or the one with an id.

    Returns them with their alerts' names. Raises UsageError if what is named does not exist, and
    Copied if the root is a copy.
    """
    ensure_no_copy(store)
    names = alert_names(store)
    if name is not None and name not in names:
        raise UsageError(f"there is no alert {name}", hint=did_you_mean(name, names) or _LIST_DEAD)
    found = tuple(
        (each, letter)
        for each in ((name,) if name is not None else names)
        for letter in dead_letters(store, each)
        if id_ in {None, letter.message.id}
    )
    if id_ is not None and not found:
        whose = "" if name is None else f" of alert {name}"
        raise UsageError(f"there is no dead letter {id_}{whose}", hint=_LIST_DEAD)
    for each, letter in found:
        ask_again(store, each, letter.message.id)
    return found
