"""A change set is computed: the SQL of its difference is run, and its head is made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from kappa.serving.outlets.changes.change_set import CHANGES, ChangeSet, Head, Kind
from kappa.serving.outlets.changes.net import Net, between, paths_of, whole
from kappa.serving.outlets.changes.point import Point, vouched_by
from kappa.serving.query.reader.client import Client
from kappa.serving.query.reader.opened import open_reader
from kappa.serving.query.reader.reader import Limits, Reader
from kappa.serving.query.reader.relations import files_at
from kappa.state.file_sums import ensure_whole
from kappa.state.journal.events import Served, SwitchAsked
from kappa.state.journal.journal import JournalView
from kappa.state.store import Store

# To be computed in memory: as Parquet, which is some tenth of what it takes there.
_SMALL_BYTES = 32 * 1024 * 1024


@contextmanager
def changes_until(
    store: Store,
    before: Point | None,
    after: Point,
    *,
    is_first: bool,
    limits: Limits | None,
    client: Client,
) -> Iterator[ChangeSet]:
    """Opens the change set that leads from one point, or from nothing, to a certain other one.

    Both must be kept meanwhile. `is_first`: nothing was asked for before, so it is no reset. If the
    client leaves, it is broken off by ClientLeft.
    """
    kind = (
        (Kind.SNAPSHOT if is_first else Kind.RESET)
        if before is None
        else Kind.SLICE
        if before.birth.build == after.birth.build
        else switch_kind(store, after)
    )
    change_set, reader = open_change_set(store, kind, before, after, limits, client=client)
    with reader, client.ending(reader.interrupt):
        yield change_set
        clear(reader)


def open_change_set(
    store: Store,
    kind: Kind,
    before: Point | None,
    after: Point,
    limits: Limits | None,
    *,
    starts_empty: bool = False,
    unlimited_if_small: bool = False,
    client: Client | None = None,
) -> tuple[ChangeSet, Reader]:
    """Computes a change set, and returns it with its reader, which the caller closes.

    `unlimited_if_small`: one of few bytes is computed in memory, which takes less time.
    """
    earlier = None if kind is Kind.RESET else before
    points = (after,) if earlier is None else (earlier, after)
    vouched = vouched_by(store, *points)

    def files(path: str, version: int) -> tuple[str, ...]:
        return files_at(path, version, vouched.get((path, version)))

    net = whole(store, after, files) if earlier is None else between(store, earlier, after, files)
    if earlier is None and starts_empty:
        net = replace(net, difference=f"{net.difference} limit 0")
    for point in points:
        ensure_whole(store, point.birth.build, paths_of(store, point, files))
    is_small = net.bytes is not None and net.bytes <= _SMALL_BYTES
    reader = open_reader(None if unlimited_if_small and is_small else limits, served=True)
    try:
        with (client or Client()).ending(reader.interrupt):
            _put(reader, net)
    except BaseException:
        reader.close()
        raise
    head = Head(
        kind,
        after.table.name,
        after.birth.pipeline,
        None if earlier is None else earlier.cursor,
        after.cursor,
        after.frontier.offsets,
        after.table.keys,
        after.table.served,
    )
    return ChangeSet(head, after, reader, (earlier or after).table.served), reader


def clear(reader: Reader) -> None:
    """Drops the relation: the connection may be another reader's next."""
    reader.command(f"drop table {CHANGES}")


def _put(reader: Reader, net: Net) -> None:
    """Makes the relation of all changes in a reader."""
    for name, query in net.relations.items():
        reader.command(f"create or replace temp table {name} as {query}")
    reader.command(f"create or replace temp table {CHANGES} as {net.difference}")
    for name in net.relations:
        reader.command(f"drop table {name}")


def switch_kind(store: Store, after: Point) -> Kind:
    """Returns the kind of the switch that made a point's build serve, as the journal has it."""
    records = JournalView(store).records()
    for record in reversed(records):
        event = record.event
        if not isinstance(event, Served) or event.generation > after.generation:
            continue
        for switched in event.switched:
            begun = records[switched.rollout - 1].event
            if getattr(begun, "pipeline", None) == after.birth.pipeline:
                return Kind.UNDO if isinstance(begun, SwitchAsked) else Kind.PROMOTE
    return Kind.PROMOTE
