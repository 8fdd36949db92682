"""Examines a root for damage: checks the records, and the files of builds.

Each document is compared with its seal (a checksum that is stored in the document), and each code
snapshot with the birth certificate. The files of each table are compared with the file lists of the
newest frontier and of the kept frontiers: all files must exist, with the recorded sizes. This
module does not read the rows in the files; scrub.py reads them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from kappa.base.errors import Broken, Damaged, KappaError
from kappa.code.code_snapshot import ensure_unchanged
from kappa.engine.job.legs import leg_records
from kappa.replay.rollout.fold import advance_state
from kappa.replay.rollout.rollout import IllegalTransition
from kappa.replay.rollout.state import State
from kappa.serving.access.accounts import TOKENS
from kappa.serving.access.tokens import TokenFile
from kappa.state.alignment import alignment_records
from kappa.state.build import (
    Birth,
    birth_name,
    has_copy,
    is_born,
    read_birth,
    table_path,
)
from kappa.state.documents import NumberedRecords, set_damaged_aside
from kappa.state.file_sums import sums_records
from kappa.state.files.address import entries_at
from kappa.state.frontier import Frontier, Frontiers, frontier_records
from kappa.state.journal.journal import JournalRecord, journal_records
from kappa.state.kept_frontiers import (
    kept_frontiers_of,
    kept_name,
    lost_kept_numbers,
    read_kept_frontier,
)
from kappa.state.lease import floor_records, read_floor, sorted_leases
from kappa.state.root import NAME as ROOT
from kappa.state.root import ROOT_COPY, has_root_copy, read_root
from kappa.state.store import DAMAGED, Store
from kappa.tables.file_list import missing_in
from kappa.tables.versions import list_of

_REPLAY = "kappa undo PIPELINE serves the build before; kappa replay PIPELINE makes a new one"
# The records of a build: the consequence of an unreadable record, and the state without the record.
_RECORDS: tuple[tuple[Callable[[Store, str], NumberedRecords[Any]], str, str], ...] = (
    (
        frontier_records,
        "no query is answered from the build, and its job does not start",
        "the job goes on from the frontier before, which readers see, or one of its tables' marks",
    ),
    (
        leg_records,
        "the job does not start",
        "the job plans its way anew from its frontier",
    ),
    (
        floor_records,
        "no query is answered from the build, and its job does not start",
        "the job puts another floor with its next upkeep",
    ),
    (
        sums_records,
        "no query is answered from the build, and its job does not start",
        "files that were written before are not checked any more, and serve as they are",
    ),
    (
        alignment_records,
        "a candidate's rollout fails",
        "the candidate is aligned again",
    ),
)
# All documents that are read back. Those that a build's or the journal's records are not, and that
# follow from nothing else, are the birth certificates, and how far an archive lasts.
_DOCUMENT = re.compile(
    r"copying\.json|journal/\d+\.json|(builds/[^/]+/)?\w+\.newest|collector/spool/position"
    r"|builds/[^/]+/([\w-]+|(?!(code|checkpoint|spark|tables)/)\w+/(\d+|progress))\.json"
    r"|(alerts|cache|collector/pull|leases|run|schemas)/.*\.json|archive/[^/]+/[^/]+\.json"
)
_TOLD = re.compile(r"journal/\d+\.json|builds/[^/]+/(birth\.json|(?!kept/)\w+/\d+\.json)")
_ARCHIVE = re.compile(r"archive/([^/]+)/[^/]+\.json")
_FOLDERS = (
    *("alerts", "archive", "builds", "cache", "collector"),
    *("journal", "leases", "run", "schemas"),
)


# A job that goes on may delete files during each look, but hardly during all of them.
_LOOKS = 5


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged record or file below a root.

    `follows` is the consequence of the damage, and `then` is the state after a repair. `names` are
    the objects below the root that a repair moves aside. If `names` is empty, a repair is
    impossible, and `hint` is advice for the operator.
    """

    what: str
    follows: str
    names: tuple[str, ...] = ()
    then: str = ""
    hint: str = ""

    def text_lines(self, number: int) -> tuple[str, ...]:
        """Returns the damage as lines for display. The first line begins with `number`."""
        files = "1 file is" if len(self.names) == 1 else f"{len(self.names)} files are"
        return (
            f"{number}. {self.what}",
            f"   now:    {self.follows}",
            *((f"   repair: {files} moved aside; {self.then}",) if self.names else ()),
            *((f"   hint:   {self.hint}",) if self.hint else ()),
        )


def examine_root(store: Store, *, now: float) -> tuple[Damage, ...]:
    """Examines a root, and returns all damage. `now` is in seconds since 1970.

    Damaged files that can be derived again from other files are moved aside at once.
    """
    state, found = _read_journal(store)
    builds = sorted({name.split("/")[1] for name in store.names("builds") if name.count("/") > 1})
    sorted_leases(store, now)
    for build in builds:
        if build not in state.retired:
            found += _build_damage(store, build, serves=build in state.serving.values())
        elif is_born(store, build):
            found += _birth_damage(
                store, build, "kappa history cannot tell of it; nothing else needs it"
            )
    for place in dict.fromkeys((store, store.local)):
        found += _document_damage(place)
    found += _root_damage(store, builds)
    found += _token_damage(store)
    return tuple(found)


def unvouched_builds(store: Store) -> tuple[str, ...]:
    """Lists the builds whose newest frontier lacks the checksum of a table's file list.

    Such a frontier was written by an older Kappa.
    """
    found = list[str]()
    state, _ = _read_journal(store)
    for build in sorted({state.folded_by(build) for build in state.wanted_builds()}):
        # `examine` names the damage.
        with suppress(KappaError):
            last = frontier_records(store, build).last()
            if last is not None and not last[1].file_lists.keys() >= last[1].versions.keys():
                found.append(build)
    return tuple(found)


def unsealed_documents(store: Store) -> tuple[str, ...]:
    """Lists the stored documents without a checksum (seal), by name.

    If such a document is changed later, Kappa cannot notice the change. These documents were
    written by an older Kappa.
    """
    found = set[str]()
    for place in dict.fromkeys((store, store.local)):
        for name in _document_names(place):
            with suppress(Damaged):
                document, seal = place.get_sealed(name)
                found |= {name} if document is not None and not seal else set()
    return tuple(sorted(found))


def _document_names(store: Store) -> Iterator[str]:
    every = (name for folder in _FOLDERS for name in store.names(folder))
    alone = (name for name in ("copying.json", "journal.newest") if store.get(name) is not None)
    yield from filter(_DOCUMENT.fullmatch, (*every, *alone))


def _document_damage(store: Store) -> Iterator[Damage]:
    """Yields the damage of documents that belong neither to the journal nor to a build.

    Damaged documents that can be derived again are moved aside at once, and are not yielded.
    """
    for name in _document_names(store):
        if _TOLD.fullmatch(name):
            continue
        try:
            store.get_sealed(name)
        except Damaged as error:
            archive = _ARCHIVE.fullmatch(name)
            if archive is None:
                set_damaged_aside(store, name, error)
                continue
            yield Damage(
                error.message,
                f"the archive of topic {archive[1]} is neither read nor written",
                (name,),
                "it goes on from its newest commit, and files that were written before are not "
                "checked any more",
            )


def _token_damage(store: Store) -> Iterator[Damage]:
    """Yields a `Damage` if the file of named tokens is damaged.

    The damage cannot be repaired, because the file has no copy.
    """
    try:
        TokenFile(store.local.path(TOKENS)).tokens()
    except Damaged as error:
        yield Damage(
            error.message,
            "no client with a token by name is let in; serve.token and an issuer's tokens work",
            hint=error.hint,
        )


def _root_damage(store: Store, builds: Iterable[str]) -> Iterator[Damage]:
    """Yields a `Damage` if the file that describes the root itself is damaged or gone.

    An old root may have no such file. But if a build has a frontier with a checksum, the file
    existed: a Kappa that writes these checksums starts jobs only in a root with this file.
    """
    try:
        if read_root(store) is not None:
            # The copy of the file may only be moved aside while the file itself is there.
            try:
                store.get_sealed(ROOT_COPY)
            except Damaged as error:
                set_damaged_aside(store, ROOT_COPY, error)
            return
    except Damaged as error:
        follows = "nothing is changed any more, so no kappa up; queries are answered"
        if has_root_copy(store):
            yield Damage(error.message, follows, (ROOT,), "its copy takes its place")
        else:
            yield Damage(error.message, follows, hint=error.hint)
        return
    # No `kappa up` continues from a copy that was cut short.
    for build in builds if store.get("copying.json") is None else ():
        with suppress(Damaged):
            records = frontier_records(store, build)
            numbers = records.numbers()
            if numbers and store.get_sealed(records.name(numbers[-1]))[1]:
                yield Damage(
                    f"{store.address(ROOT)} is gone, and was there when build {build} was folded",
                    "nobody knows whether this root is a copy: the next kappa up takes it for none "
                    "and sends what it has to send",
                    hint="put it back from a backup; if this root is not a copy, kappa up makes "
                    "another",
                )
                return


def count_set_aside(store: Store) -> int:
    """Returns the number of objects that were moved aside and are still kept."""
    return len(store.names(DAMAGED))


def _read_journal(store: Store) -> tuple[State, list[Damage]]:
    """Returns the state before the journal's first damaged record, and the damage found."""
    records, state = journal_records(store), State()
    noted, numbers = records.noted_number(), records.numbers()
    for number in range(1, (numbers[-1] if numbers else 0) + 1):
        try:
            record = records.get(number)
            why = (
                f"journal record {number} is missing, and record {numbers[-1]} is there: "
                f"{records.address(number)}"
            )
            if record is not None:
                state = advance_state(state, record)
                continue
        except (Damaged, IllegalTransition) as error:
            why = error.message
        later = [each for each in numbers if each >= number]
        return state, [
            _journal_damage(
                state,
                why,
                [records.name(each) for each in later],
                _count_event_kinds(records, later),
            )
        ]
    if noted > (numbers[-1] if numbers else 0):
        return state, [
            _journal_damage(state, records.lost(noted).message, [records.note], Counter())
        ]
    return state, []


def _journal_damage(state: State, why: str, names: list[str], lost: Counter[str]) -> Damage:
    counted = ", ".join(f"{count} {kind}" for kind, count in sorted(lost.items())) or "none"
    return Damage(
        why,
        f"nothing is decided any more: the records behind it ({counted}) cannot be trusted",
        tuple(names),
        f"all goes on from record {state.last}, with generation {state.generation}: what the later "
        "records decided is forgotten, readers may go back to it, and kappa gc deletes the builds "
        "that only they name",
        "a copy of the journal folder is better: put it back in its place, if there is one",
    )


def _count_event_kinds(records: NumberedRecords[JournalRecord], numbers: list[int]) -> Counter[str]:
    kinds: Counter[str] = Counter()
    for number in numbers:
        with suppress(Damaged):
            record = records.get(number)
            if record is not None:
                kinds[str(record.event.kind)] += 1
    return kinds


def _birth_damage(store: Store, build: str, follows: str) -> Iterator[Damage]:
    try:
        read_birth(store, build)
    except Damaged as error:
        if has_copy(store, build):
            then = "its copy takes its place, and all goes on"
            yield Damage(error.message, follows, (birth_name(build),), then)
        else:
            yield Damage(
                error.message,
                f"{follows}, nor can anything be planned",
                hint=f"put {birth_name(build)} back from a copy of the root",
            )
    except KappaError as error:
        yield Damage(error.message, follows, hint=_REPLAY)


def _build_damage(store: Store, build: str, *, serves: bool) -> Iterator[Damage]:
    damaged = tuple(_birth_damage(store, build, f"build {build} can neither run nor serve"))
    yield from damaged
    if damaged:
        return
    birth = read_birth(store, build)
    try:
        ensure_unchanged(store, birth)
    except Broken as error:
        yield Damage(error.message, f"the job of build {build} does not start", hint=error.hint)
    if birth.folded_by != build:
        # The build serves the tables of another build.
        return
    for records_of, follows, then in _RECORDS:
        yield from _record_damage(records_of(store, build), follows, then)
    kept = kept_frontiers_of(store, build)
    for number in lost_kept_numbers(store, build):
        yield Damage(
            f"the kept frontier {number} of build {build} is gone: {kept_name(build, number)}",
            "what was served between the kept ones beside it is not answered any more",
            hint="nothing else needs it, and it is forgotten with those of its time",
        )
    with suppress(Damaged):
        found = Frontiers(store, build).newest()
        noted = frontier_records(store, build).noted_number()
        shown = max(noted, read_floor(store, build), *(each.frontier.number for each in kept), 0)
        if serves or found is not None or shown:
            where = frontier_records(store, build).address(shown)
            yield from _lost_frontiers(build, found, shown, where)
        if found is not None:
            past = [each.frontier for each in kept]
            yield from _lasting_table_damage(store, birth, found, past, serves=serves)


def _lost_frontiers(
    build: str, newest: Frontier | None, shown: int, where: str
) -> Iterator[Damage]:
    """Yields a `Damage` if frontiers that readers saw are gone.

    `shown` is the greatest frontier number that readers saw, according to other records of the
    build. `where` is the address of the frontier with this number.
    """
    if newest is None or newest.number < shown:
        yield Damage(
            f"build {build} has no frontier, and frontier {shown} was there: {where}"
            if newest is None
            else f"frontier {shown} of build {build} is gone, and readers saw it: {where}",
            "until its job goes on, no query is answered from it, or with older rows than before",
            hint="kappa up: its job goes on from the frontier before, or one of its tables' marks; "
            f"if it does not, {_REPLAY}",
        )


def _record_damage(records: NumberedRecords[Any], follows: str, then: str) -> Iterator[Damage]:
    for number in records.numbers():
        try:
            records.get(number)
        except Damaged as error:
            yield Damage(error.message, follows, (records.name(number),), then)
    noted, numbers = records.noted_number(), records.numbers()
    for before, following in pairwise(numbers):
        if following == before + 1 or _begins_anew(records, following):
            continue
        for number in range(before + 1, following):
            yield Damage(
                f"{records.address(number)} is gone, and record {numbers[-1]} is there",
                "what it told is not known any more",
                hint="put it back from a copy of the root, if there is one; the newest record "
                "counts",
            )
    if noted > max(numbers, default=0) and (numbers or not records.made_anew):
        yield Damage(records.lost(noted).message, follows, (records.note,), then)


def _begins_anew(records: NumberedRecords[Any], number: int) -> bool:
    """Returns True if an earlier repair has moved aside the records before record `number`."""
    with suppress(Damaged):
        return records.begins_anew(number)
    return False


def _lasting_table_damage(
    store: Store, birth: Birth, newest: Frontier, kept: Iterable[Frontier], *, serves: bool
) -> tuple[Damage, ...]:
    """Returns the damage of a build's tables, examined at the build's newest frontier.

    The job's maintenance deletes the files of a frontier once a later frontier exists, and no lease
    protects this examination. So if damage is found and a new frontier has been published
    meanwhile, the examination is repeated, at most five times.
    """
    for _ in range(_LOOKS):
        found = tuple(_table_damage(store, birth, newest, kept, serves=serves))
        later = Frontiers(store, birth.build).newest() if found else None
        if later is None or later.number == newest.number:
            break
        newest = later
    return found


def _table_damage(
    store: Store, birth: Birth, newest: Frontier, kept: Iterable[Frontier], *, serves: bool
) -> Iterator[Damage]:
    """Yields the damage of tables with missing or incomplete files at one of the frontiers."""
    follows = f"queries of build {birth.build} fail" if serves else "it cannot go on"
    for name in newest.versions:
        path = table_path(store, birth.build, name)
        there = {each.address: each.size for each in entries_at(path)}
        seen = set[str]()
        for frontier in (*kept, newest):
            is_past = frontier is not newest
            try:
                version, vouched = frontier.versions.get(name), frontier.file_lists.get(name)
                why = (
                    None
                    if version is None
                    else missing_in(path, list_of(path, version, vouched), there)
                )
            except KappaError as error:
                why = error.message
            if is_past and read_kept_frontier(store, birth.build, frontier.number) is None:
                # The kept frontier was released meanwhile.
                continue
            if why is not None and why not in seen:
                seen.add(why)
                yield Damage(
                    f"table {name} of build {birth.build} is damaged: {why}",
                    "only answers as of the past fail" if is_past else follows,
                    hint=_REPLAY,
                )
