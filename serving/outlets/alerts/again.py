"""The wish of an operator to send dead letters again.

The courier fulfils it, now or once it is up. One process sends alerts, so their messages keep their
order. A letter that is refused again stays.
"""

from __future__ import annotations

from kappa.base.errors import UsageError, did_you_mean
from kappa.serving.outlets.alerts.outbox import DeadLetter, alert_names, ask_again, dead_letters
from kappa.state.root import ensure_no_copy
from kappa.state.store import Store

_LIST = "kappa alerts list --dead lists the dead letters"


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
        raise UsageError(f"there is no alert {name}", hint=did_you_mean(name, names) or _LIST)
    found = tuple(
        (each, letter)
        for each in ((name,) if name is not None else names)
        for letter in dead_letters(store, each)
        if id_ in {None, letter.message.id}
    )
    if id_ is not None and not found:
        whose = "" if name is None else f" of alert {name}"
        raise UsageError(f"there is no dead letter {id_}{whose}", hint=_LIST)
    for each, letter in found:
        ask_again(store, each, letter.message.id)
    return found
