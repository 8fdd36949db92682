"""The documents of an alert: outbox, progress, dead letters, and messages on Kappa's page.

The outbox contains the messages of one change set, and the cursor at which the next change set
begins. So a single write stores the messages of a change set and also discards the previous
messages. The progress may be lost, for example by a power loss; then the messages of the outbox are
sent again. An outbox that cannot be read is moved aside, and the alert has then missed the changes
after that outbox.

A dead letter is a message that Kappa no longer tries to deliver. An operator may request that dead
letters be sent again. The courier fulfils the request, at once or when it next runs: only one
process sends alerts, so that the messages stay in order. If the receiver refuses a dead letter
again, the dead letter is not deleted.
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
_LIST_DEAD = "kappa alerts list --dead lists the dead letters"


class Missed(Struct, frozen=True):
    """A period whose changes an alert has missed.

    The period's begin and end are in seconds since 1970.
    """

    since: float
    until: float


class Outbox(Struct, frozen=True):
    """The messages of a change set, and the cursor at which the change set ends.

    `at` is the time at which the outbox was created, in seconds since 1970. `missed` is the
    most recent period whose changes the alert has missed, or None.
    """

    number: int
    cursor: str
    at: float
    messages: tuple[Message, ...] = ()
    missed: Missed | None = None
    format: int = 1


class AlertProgress(Struct, frozen=True):
    """The progress of an alert: the number of settled messages in its outbox.

    A message is settled if it was received or given up. `outbox` is the number of the outbox.
    `tries`, `first_tried_at` and `next_try_at` belong to the next message. `delivered` counts all
    messages of the alert that were received. `error` is the reason of the last failure, or "" if a
    message was received after that failure.
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

    @property
    def failing_since(self) -> float | None:
        """Returns the time of the first attempt to send what waits, if the last attempt failed.

        The time is in seconds since 1970. Returns None if it is unknown.
        """
        return (self.first_tried_at or None) if self.error else None


class DeadLetter(Struct, frozen=True):
    """A message that could not be delivered, with the reason, the attempts and the time."""

    message: Message
    reason: str
    tries: int
    at: str
    format: int = 1


class ShownMessages(Struct, frozen=True):
    """The last messages of an alert on Kappa's page, newest first."""

    messages: tuple[Message, ...] = ()
    format: int = 1


class _SendAgainRequest(Struct, frozen=True):
    """A request to send a dead letter again."""

    format: int = 1


_OUTBOX = Documents(Outbox, derived=True)
_PROGRESS = Documents(AlertProgress, derived=True, synced=False)
_DEAD = Documents(DeadLetter, derived=True)
_SHOWN = Documents(ShownMessages, derived=True)
_AGAIN = Documents(_SendAgainRequest, derived=True)


def alert_folder(name: str) -> str:
    """Returns the folder of an alert below the root."""
    return f"{_ALERTS}/{name}"


def alert_names(store: Store) -> tuple[str, ...]:
    """Returns the names of all alerts that have documents."""
    return tuple(sorted({name.split("/")[1] for name in store.names(_ALERTS)}))


def read_outbox(store: Store, name: str) -> Outbox | None:
    """Returns the outbox of an alert, or None if no change set was processed yet."""
    return _OUTBOX.get(store, f"{alert_folder(name)}/outbox.json", f"the outbox of alert {name}")


def put_outbox(store: Store, name: str, outbox: Outbox) -> None:
    """Stores an outbox, which replaces the previous outbox.

    No message of the previous outbox may need a further attempt.
    """
    failpoint("alert.before_take")
    _OUTBOX.put(store, f"{alert_folder(name)}/outbox.json", outbox)
    failpoint("alert.after_take")


def read_alert_progress(store: Store, name: str) -> AlertProgress:
    """Returns the progress of an alert."""
    found = _PROGRESS.get(
        store, f"{alert_folder(name)}/progress.json", f"the progress of alert {name}"
    )
    return AlertProgress() if found is None else found


def put_alert_progress(store: Store, name: str, progress: AlertProgress) -> None:
    """Stores the progress of an alert."""
    failpoint("alert.before_settle")
    _PROGRESS.put(store, f"{alert_folder(name)}/progress.json", progress)
    failpoint("alert.after_settle")


def dead_letters(store: Store, name: str) -> tuple[DeadLetter, ...]:
    """Returns the dead letters of an alert, oldest first."""
    ids = (_id_in_path(each) for each in store.names(f"{alert_folder(name)}/dead"))
    found = (read_dead_letter(store, name, id_) for id_ in ids)
    return tuple(sorted((each for each in found if each is not None), key=lambda each: each.at))


def read_dead_letter(store: Store, name: str, id_: str) -> DeadLetter | None:
    """Returns the dead letter with the given message id, or None if there is none."""
    return _DEAD.get(store, _dead_letter_name(name, id_), f"dead letter {id_} of alert {name}")


def put_dead_letter(store: Store, name: str, letter: DeadLetter) -> None:
    """Stores a dead letter."""
    failpoint("alert.before_give_up")
    _DEAD.put(store, _dead_letter_name(name, letter.message.id), letter)
    failpoint("alert.after_give_up")


def delete_dead_letter(store: Store, name: str, id_: str) -> None:
    """Deletes a dead letter after the receiver has received it."""
    failpoint("alert.before_delete")
    store.delete(_dead_letter_name(name, id_))
    failpoint("alert.after_delete")


def shown_messages(store: Store, name: str) -> tuple[Message, ...]:
    """Returns the messages of an alert that Kappa's page shows, newest first."""
    found = _SHOWN.get(store, f"{alert_folder(name)}/shown.json", f"the messages of alert {name}")
    return () if found is None else found.messages


def show_message(store: Store, name: str, message: Message) -> None:
    """Adds a message to the messages that Kappa's page shows, as the newest message.

    A message that is added again is shown only once.
    """
    there = shown_messages(store, name)
    if all(each.id != message.id for each in there):
        shown = ShownMessages((message, *there)[:MOST_SHOWN])
        _SHOWN.put(store, f"{alert_folder(name)}/shown.json", shown)


def ask_to_send_again(store: Store, name: str, id_: str) -> None:
    """Requests that the dead letter with the given id be sent again, once."""
    _AGAIN.put(store, _request_name(name, id_), _SendAgainRequest())


def ids_to_send_again(store: Store, name: str) -> tuple[str, ...]:
    """Returns the ids of the dead letters that an operator has requested to send again."""
    return tuple(_id_in_path(each) for each in store.names(f"{alert_folder(name)}/again"))


def delete_request_to_send_again(store: Store, name: str, id_: str) -> None:
    """Deletes the request to send a dead letter again.

    The courier calls this function after it has tried to send the dead letter.
    """
    failpoint("alert.before_answer")
    store.delete(_request_name(name, id_))
    failpoint("alert.after_answer")


def _dead_letter_name(name: str, id_: str) -> str:
    return f"{alert_folder(name)}/dead/{id_}.json"


def _request_name(name: str, id_: str) -> str:
    return f"{alert_folder(name)}/again/{id_}.json"


def _id_in_path(path: str) -> str:
    return path.rsplit("/", 1)[-1].removesuffix(".json")


def ask_for_dead_letters(
    store: Store, name: str | None = None, id_: str | None = None
) -> tuple[tuple[str, DeadLetter], ...]:
    """Requests that dead letters be sent again, and returns these dead letters.

    Each element of the result contains the name of an alert and one of its dead letters. Without
    `name` and `id_`, the request is for all dead letters. `name` selects the dead letters of one
    alert, and `id_` selects one dead letter. Raises UsageError if the alert or the dead letter does
    not exist, and Copied if the root is a copy.
    """
    ensure_no_copy(store)
    found = found_dead_letters(store, name, id_)
    for each, letter in found:
        ask_to_send_again(store, each, letter.message.id)
    return found


def found_dead_letters(
    store: Store, name: str | None = None, id_: str | None = None
) -> tuple[tuple[str, DeadLetter], ...]:
    """Returns the dead letters that `ask_for_dead_letters` would request to be sent again.

    Each element of the result contains the name of an alert and one of its dead letters. Nothing is
    requested. Raises UsageError if the alert or the dead letter does not exist.
    """
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
    return found
