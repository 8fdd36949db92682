"""Writes, reads and checks the JSON documents of a root, both single and numbered documents.

A document contains one record, and a seal: a hash of the document's other bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import pairwise
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from kappa.base.document_seal import sealed, unsealed
from kappa.base.errors import Broken, Damaged, KappaError
from kappa.state.files.address import ask_side_by_side
from kappa.state.offsets import Offsets
from kappa.state.store import Store

_Record = TypeVar("_Record")
# Wide enough for a record a microsecond over centuries, so that names sort as numbers do.
_DIGITS = 20
# The key of the previous record's seal.
_BEFORE = "before"
# Records of a bucket that are read at the same time.
_MOST_AT_ONCE = 16
_MEND = "kappa doctor --repair tells what follows from it, and mends it"


class NumberTaken(Broken):
    """The error if a process stores a record under a number that is already used.

    The error shows that another process has written for the same build, although a build has only
    one writer.
    """

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} was put by another process",
            hint="two jobs ran for one build; kappa logs says which",
        )


class Documents(Generic[_Record]):
    """A reader and writer of JSON documents, each of which stores one record of a class."""

    def __init__(self, kind: type[_Record], *, derived: bool = False, synced: bool = True) -> None:
        """Describes the documents that store records of the class `kind`.

        A document contains the fields of one record. A `derived` document can be computed again
        from other documents, or describes a process and is useless after the process exits. If a
        derived document cannot be read, it is moved aside, and counts as missing. A document that
        is not `synced` may be lost or incomplete after a power loss; so it must be derived.
        """
        assert synced or derived, f"{kind.__name__} would be lost for good"
        # Threads that are the first to convert to a class, and at once, are ended by a signal.
        msgspec.json.Decoder(kind, dec_hook=value_of_plain)
        self._kind = kind
        self._derived = derived
        self._synced = synced

    def put(self, store: Store, name: str, record: _Record) -> None:
        """Stores a record. An existing record of that name is replaced."""
        store.put_json(name, self.plain(record), synced=self._synced)

    def put_new(self, store: Store, name: str, record: _Record) -> bool:
        """Stores a record. Returns False, and changes nothing, if a record of that name exists."""
        return store.put_new_json(name, self.plain(record))

    def get(self, store: Store, name: str, what: str, *, hint: str = "") -> _Record | None:
        """Returns a record, or None if no record of that name exists.

        If the document of the record cannot be read, Damaged is raised. If that document is
        derived, it is moved aside instead, and None is returned. `what` names the record in the
        error, and `hint` is the error's hint.
        """
        try:
            document, _ = _read_document(store, name, what, hint)
            return None if document is None else self.parse(document, what, hint=hint)
        except Damaged as error:
            if not self._derived:
                raise
            set_damaged_aside(store, name, error)
            return None

    def plain(self, record: _Record) -> Any:
        """Converts a record to a document, that is, to nested dicts and lists of plain values.

        Plain values are text, numbers, booleans and None.
        """
        return msgspec.to_builtins(record, str_keys=True, enc_hook=plain_value)

    def parse(self, document: object, what: str, *, hint: str = "") -> _Record:
        """Converts a document to a record.

        Raises Damaged if the document is not a valid record. The error names the document as
        `what`.
        """
        try:
            return msgspec.convert(document, self._kind, str_keys=True, dec_hook=value_of_plain)
        except msgspec.ValidationError as error:
            raise Damaged(f"{what} cannot be read: {error}", hint=hint) from error


def plain_value(value: object) -> object:
    """Converts a value whose type msgspec does not support to text, numbers, lists and dicts.

    msgspec calls this function as its `enc_hook`. Raises NotImplementedError if this function does
    not support the type either.
    """
    match value:
        case Offsets():
            return value.plain()
        case Mapping():
            return dict(value)
        # Subclasses, such as numpy's floats.
        case str():
            return str(value)
        case float():
            return float(value)
    raise NotImplementedError


def value_of_plain(kind: type, plain: object) -> object:
    """Converts the plain form of a value (a text or a dict) back to a value of the class `kind`.

    msgspec calls this function as its `dec_hook`. The only supported class is Offsets; for any
    other class, NotImplementedError is raised. Raises ValueError if `plain` is not a valid vector
    of offsets.
    """
    if kind is not Offsets:
        raise NotImplementedError
    try:
        return Offsets.parse(plain)
    except Damaged as error:
        raise ValueError(error.message) from error


def set_damaged_aside(store: Store, name: str, error: Damaged) -> None:
    """Moves a document that cannot be read into the folder of damaged documents.

    The document is derived: it can be computed again. `error` says why it cannot be read; its
    message and the document's new path are printed to stderr.
    """
    aside = store.set_aside(name)
    if aside is not None:
        print(f"{error.message}; it was moved to {aside}", file=sys.stderr, flush=True)


def cached_json(store: Store, name: str) -> Any:
    """Returns a document that serves as a cache, or None if it is missing or damaged.

    A document is damaged if it cannot be read, or if it has changed since it was written. A damaged
    document is moved aside.
    """
    try:
        return store.get_json(name)
    except Damaged as error:
        set_damaged_aside(store, name, error)
        return None


class LastNumber(Struct, frozen=True):
    """The content of a folder's note file: the number of the last record stored in the folder."""

    number: int
    format: int = 1


_LAST = Documents(LastNumber, derived=True, synced=False)


class NumberedRecords(Generic[_Record]):
    """An append-only sequence of numbered records, from number 1. Each number is used only once.

    The newest records are numbered without gaps. Older records may be deleted, but never the newest
    record. Each record contains a seal, which is a hash of the record, and the seal of the previous
    record. So Kappa notices if a record was changed, or if a lost record was replaced by a
    different record.

    A file next to the folder, the note, contains the last number, so that the loss of the newest
    record is noticed. The note is on the host that stored the newest record, and is written after
    that record. If the note is lost, for example by a power loss, the loss of the newest record may
    not be noticed.
    """

    def __init__(
        self,
        store: Store,
        folder: str,
        kind: Documents[_Record],
        what: str,
        *,
        hint: str = "",
        made_anew: bool = False,
    ) -> None:
        """Opens the sequence of the records in a folder, without reading a record.

        `what` is the name of a record in errors, with `{}` for the number: `leg {} of build b`.
        `made_anew` is True if the records can be created again from other files. In this case, a
        sequence without any record is normal; otherwise the loss of all records is damage.
        """
        self._store = store
        self._folder = folder
        self._kind = kind
        self._what = what
        self._hint = hint
        self.made_anew = made_anew
        # The number and the seal of the record that was read or put last.
        self._last: tuple[int, str] = (0, "")
        # No record up to this number is missing.
        self._whole = 0
        # The number of the newest that was found.
        self._newest = 0

    @property
    def note(self) -> str:
        """Returns the name of the sequence's note, a file that contains the last number.

        The note is in the store of this host's own files (`Store.local`).
        """
        return note_of(self._folder)

    def put(self, number: int, record: _Record) -> bool:
        """Stores a record under a number. Returns False if a record with this number exists."""
        if self._last[0] != number - 1:
            self.get(number - 1)
        before = self._last[1] if self._last[0] == number - 1 else ""
        content, seal = sealed({**self._kind.plain(record), _BEFORE: before})
        put = self._store.put_new(self.name(number), content)
        if put:
            self._last = number, seal
            note_last(self._store, self._folder, number)
        return put

    def get(self, number: int) -> _Record | None:
        """Returns the record `number`, or None if it does not exist yet or was deleted.

        Raises Damaged if the record cannot be read, or has changed since it was written.
        """
        return self._accepted(number, *self._read(number))

    def _read(self, number: int) -> tuple[Any, str]:
        return _read_document(self._store, self.name(number), self._what.format(number))

    def _accepted(self, number: int, document: Any, seal: str) -> _Record | None:
        """Converts a document to the record `number`, and checks that it follows the record before.

        `document` was read from the file of the record, and `seal` is the document's hash. Returns
        None if `document` is None. A document also contains the seal of the previous record. Raises
        Damaged if this is not the seal of the record that is now the previous one.
        """
        what = self._what.format(number)
        if document is None:
            return None
        if seal:
            before, (last, last_seal) = document.pop(_BEFORE, ""), self._last
            if last == number - 1 and last_seal and before and before != last_seal:
                raise Damaged(
                    f"{what} followed another {self._what.format(last)} than the one that is there:"
                    " that one was lost, and its number used again",
                    hint=_MEND,
                )
            self._last = number, seal
        # A record that was seen once is seen after a power loss, too.
        self._store.ensure_lasting(self.name(number))
        return self._kind.parse(document, what, hint=self._hint)

    def address(self, number: int) -> str:
        """Returns the path or URL of the record `number`."""
        return self._store.address(self.name(number))

    def noted_number(self) -> int:
        """Returns the last number, as stored in the sequence's note file, or 0 without a note."""
        return noted_last(self._store, self._folder)

    def note_last(self, number: int) -> None:
        """Writes `number` to the note file, as the number of the last record.

        The number is written even if the record with this number may be lost.
        """
        note_last(self._store, self._folder, number)

    def begins_anew(self, number: int) -> bool:
        """Returns True if the record `number` was stored after all records before it were lost.

        Such a record does not contain the seal (the hash) of a previous record.
        """
        document, seal = _read_document(self._store, self.name(number), self._what.format(number))
        return bool(seal) and not document.get(_BEFORE)

    def ensure_newest(self, number: int, noted: int) -> None:
        """Raises Damaged, which names the lost record, if `noted` is higher than `number`.

        `number` is the number of the newest record that exists, and `noted` is the last number in
        the sequence's note file. Read the note file before you search for the newest record.
        """
        if noted > number:
            raise self.lost(noted)

    def lost(self, number: int) -> Damaged:
        """Returns the error for the loss of the newest record, which has the number `number`."""
        return Damaged(
            f"{self._what.format(number)} is gone: {self.address(number)} was"
            " there, and what was read from it would go back",
            hint=_MEND,
        )

    def ensure_no_hole(self) -> None:
        """Raises Damaged if a record before the newest one is missing.

        The error names the missing record. Records that an earlier call of this method has found
        are not checked again.
        """
        numbers = (self._whole, *self.numbers(after=self._whole))
        for one, other in pairwise(numbers):
            for missing in range(one + 1, other):
                # A list of a bucket may lack a record that is there.
                if self.get(missing) is None:
                    raise Damaged(
                        f"{self._what.format(missing)} is missing, and record {numbers[-1]} is "
                        "there",
                        hint=_MEND,
                    )
        self._whole = numbers[-1]

    def numbers(self, *, after: int = 0) -> tuple[int, ...]:
        """Returns the numbers of the existing records, ascending.

        With `after`, only numbers higher than `after` are returned.
        """
        return numbers_in(self._store, self._folder, after=after)

    def last(self) -> tuple[int, _Record] | None:
        """Returns the number of the newest record, and this record.

        Returns None if no record was ever stored. Raises Damaged if the newest record is lost. But
        if the records can be created again from other files, None is returned when all records are
        missing.
        """
        noted = self.noted_number()
        # The newest record is deleted only after a newer one: the list begins with that record.
        numbers = (self._newest > 1 and self.numbers(after=self._newest - 1)) or self.numbers()
        # A list of a bucket may lack a record that is there.
        while newest := max((*numbers[-1:], noted, self._newest)):
            record = self.get(newest)
            if record is not None:
                self._newest = newest
                return newest, record
            # The record was deleted after a newer one was put and noted, or it is lost. A list may
            # lack records that were put and deleted while it was made; then the note tells of them.
            numbers = self.numbers()
            noted = self.noted_number()
            if max((*numbers[-1:], noted)) <= newest and newest not in numbers:
                if numbers or (noted and not self.made_anew):
                    raise self.lost(newest)
                return None
        return None

    def is_newest(self, number: int) -> bool:
        """Returns True if the record `number` is still the newest. The root must be on a disk.

        The function reads the last number in the note file, and checks which records exist, but
        reads no record.
        """
        return (
            not self._store.path(self.name(number + 1)).exists()
            # While this record is there, no later one was deleted.
            and self._store.path(self.name(number)).exists()
            and self.noted_number() <= number
        )

    def after(self, number: int) -> Iterator[tuple[int, _Record]]:
        """Yields (number, record) for each record after `number`, in order, up to the newest one.

        Raises Damaged if a record cannot be read. If the root is in a bucket, several records are
        read at the same time.
        """
        at_once = 1
        while True:
            wanted = range(number + 1, number + 1 + at_once)
            for found in ask_side_by_side(self._store.url, self._read_or_error, wanted):
                if isinstance(found, Damaged):
                    raise found
                record = self._accepted(number + 1, *found)
                if record is None:
                    return
                number += 1
                yield number, record
            if not self._store.is_on_disk:
                at_once = min(2 * at_once, _MOST_AT_ONCE)

    def _read_or_error(self, number: int) -> tuple[Any, str] | Damaged:
        # The records before a damaged one are yielded first.
        try:
            return self._read(number)
        except Damaged as error:
            return error

    def delete_below(self, number: int) -> None:
        """Deletes all records whose number is lower than `number`."""
        self._store.delete(*(self.name(each) for each in self.numbers() if each < number))

    def name(self, number: int) -> str:
        """Returns the name of the record `number`, relative to the root."""
        return numbered_name(self._folder, number)


def _read_document(store: Store, name: str, what: str, hint: str = "") -> tuple[Any, str]:
    try:
        return store.get_sealed(name)
    except Damaged as error:
        why = f"{what} cannot be read: {error.message}"
        raise Damaged(why, hint=hint or error.hint) from error


def note_last(store: Store, folder: str, number: int) -> None:
    """Writes the number of a folder's last record to the note file of the folder.

    The note file is on this host. If it cannot be written, the error is ignored, because the record
    itself is already stored.
    """
    # The record is there: on a full disk the note only says less.
    with suppress(KappaError):
        _LAST.put(store.local, note_of(folder), LastNumber(number))


def noted_last(store: Store, folder: str) -> int:
    """Returns the number of a folder's last record, from the folder's note file on this host.

    Returns 0 if the note file does not exist.
    """
    name = note_of(folder)
    try:
        # Each query asks for several notes: this takes a tenth of the time of an object.
        return int(unsealed(store.local.path(name).read_bytes())[0]["number"])
    except FileNotFoundError:
        return 0
    except (OSError, ValueError, TypeError, KeyError):
        found = _LAST.get(store.local, name, f"the note {name}")
        return 0 if found is None else found.number


def note_of(folder: str) -> str:
    """Returns the name of a folder's note, a file that contains the number of the last record."""
    return f"{folder}.newest"


def numbered_name(folder: str, number: int) -> str:
    """Returns the name of the document `number` in a folder, relative to the root."""
    return f"{folder}/{number:0{_DIGITS}d}.json"


def numbers_in(store: Store, folder: str, *, after: int = 0) -> tuple[int, ...]:
    """Returns the numbers of a folder's documents, ascending; with `after`, only higher numbers."""
    names = store.names(folder, after=numbered_name(folder, after))
    found = (name.rsplit("/", 1)[-1].removesuffix(".json") for name in names)
    return tuple(int(number) for number in found if number.isdigit())
