"""The findings of a check of a serving build's maintained views: a derived document."""

from __future__ import annotations

from msgspec import Struct

from kappa.state.build import folder
from kappa.state.documents import Documents
from kappa.state.offsets import Offsets
from kappa.state.store import Store


class ViewCheck(Struct, frozen=True):
    """A comparison of a build's maintained views with their texts, at these offsets.

    `unlike` has a sentence for each view that is not its text, or that could not be compared.
    """

    offsets: Offsets
    unlike: tuple[str, ...]
    at: str
    format: int = 1


_CHECKS = Documents(ViewCheck, derived=True)


def put_view_check(store: Store, build: str, check: ViewCheck) -> None:
    """Puts the newest comparison of a build's views."""
    _CHECKS.put(store, _name(build), check)


def read_view_check(store: Store, build: str) -> ViewCheck | None:
    """Returns the newest comparison of a build's views, or None if there was none."""
    return _CHECKS.get(store, _name(build), f"the check of the views of build {build}")


def _name(build: str) -> str:
    return f"{folder(build)}/views-checked.json"
