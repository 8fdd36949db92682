"""The base of all kinds of events: each is stored with the name of its kind."""

from __future__ import annotations

from msgspec import Struct


class JournalEvent(Struct, frozen=True, tag_field="kind"):
    """An event of the journal, whose class has its kind as the tag."""

    @property
    def kind(self) -> str:
        """Returns the name of its kind, as the record on disk has it."""
        return str(self.__struct_config__.tag)
