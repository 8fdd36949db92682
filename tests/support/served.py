"""Serving builds, made by hand, for tests of readers without a JVM."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
from births import make_birth
from deltalake import write_deltalake
from msgspec.structs import replace

from kappa.base.clock import now
from kappa.declare.values.arrow import arrow_schema
from kappa.serving.query.query import Answer, answer_query
from kappa.state.build import put_birth, read_birth, table_path
from kappa.state.files.address import delta_options
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.journal.events import GenerationMade, PipelineRetired, Receipt, Served
from kappa.state.journal.journal import Journal
from kappa.state.offsets import Offsets
from kappa.state.root import ensure_root
from kappa.state.store import Store
from kappa.state.table import TableBirth
from kappa.tables.durable_versions import sync_versions, vouched_lists
from kappa.tables.shape import LATEST_COLUMNS, REJECTS_BIRTH

DELAYS = TableBirth(
    "delays",
    (("carrier", "string"), ("flights", "bigint"), ("_state", "binary")),
    keys=("carrier",),
)
PLANES = TableBirth(
    "planes",
    (("tailnum", "string"), ("seats", "int"), *LATEST_COLUMNS),
    keys=("tailnum",),
    latest="planes",
)
ROWS_OF_DELAYS = pa.table(
    {"carrier": ["UA", "ÅÄ", None], "flights": [3, 4, 5], "_state": [b"x", b"y", b"z"]}
)
ROWS_OF_PLANES = pa.table(
    {
        "tailnum": ["N1", "N2"],
        "seats": pa.array([100, None], pa.int32()),
        "_log_time": [1, 2],
        "_partition": pa.array([0, 0], pa.int32()),
        "_offset": [0, 1],
        "_deleted": [False, True],
    },
)


class Watched(Store):
    """A store that records whether a frontier was looked for before it was published."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.missed = threading.Event()

    def get(self, name: str) -> bytes | None:
        found = super().get(name)
        if found is None and "/frontier/" in name:
            self.missed.set()
        return found


def served_before(store: Store) -> tuple[int, int, dict[str, str]]:
    """Returns the journal's last number, the generation, and the serving builds."""
    last, record = Journal(store).last_served()
    before = None if record is None else record.event
    if not isinstance(before, GenerationMade):
        return last, 0, {}
    return last, before.generation, dict(before.serving)


def serve_build(store: Store, pipeline: str, build: str) -> None:
    """Makes a build serve, together with those of other pipelines."""
    last, generation, serving = served_before(store)
    receipt = Receipt(pipeline, build, "v1", Offsets(), None, None)
    event = Served(1, generation + 1, {**serving, pipeline: build}, receipt)
    assert Journal(store).append(last + 1, event) is not None


class Platform:
    """Serving builds, made by hand: births, Delta tables, frontiers and the journal."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def serve(
        self,
        pipeline: str,
        tables: dict[TableBirth, pa.Table | None],
        views: dict[str, str] | None = None,
    ) -> None:
        # As whoever has a build's lock does, before anything is published.
        ensure_root(self.store)
        build = f"{pipeline}-{served_before(self.store)[1] + 1}"
        has_rejects = any(each.name == "rejects" for each in tables)
        births = (*tables, *(() if has_rejects else (REJECTS_BIRTH,)))
        birth = make_birth(build, births, pipeline=pipeline, version="v1", views=views or {})
        put_birth(self.store, birth)
        for table in births:
            self._write(build, table, tables.get(table))
        versions = dict.fromkeys((table.name for table in births), 0)
        self._publish(Frontier(1, build, 1, Offsets({"flights": {0: 12}}), versions, now()), None)
        serve_build(self.store, pipeline, build)

    def retire(self, pipeline: str) -> None:
        """Takes a pipeline out of service, only by the journal record."""
        last, generation, serving = served_before(self.store)
        build = serving.pop(pipeline)
        names, at = read_birth(self.store, build).public_names, Offsets()
        event = PipelineRetired(
            pipeline, build, generation + 1, serving, names, at, 3600.0, generation
        )
        assert Journal(self.store).append(last + 1, event) is not None

    def advance(self, build: str, table: TableBirth, rows: pa.Table) -> None:
        """Writes the next version of a table, and publishes it."""
        self._write(build, table, rows)
        frontiers = Frontiers(self.store, build)
        last = frontiers.newest()
        assert last is not None
        versions = {**last.versions, table.name: last.versions[table.name] + 1}
        offsets = Offsets({"flights": {0: 24}})
        self._publish(Frontier(last.number + 1, build, 1, offsets, versions, now()), last)

    def _publish(self, frontier: Frontier, last: Frontier | None) -> None:
        """Publishes a frontier with the checksums that a job's publisher would put into it."""
        build, versions = frontier.build, frontier.versions
        before = {} if last is None else last.versions
        sums = sync_versions(self.store, build, before, versions)
        lists = vouched_lists(self.store, build, last, versions)
        Frontiers(self.store, build).publish(replace(frontier, sums=sums, file_lists=lists))

    def ask(self, sql: str) -> Answer:
        return answer_query(self.store, sql)

    def _write(self, build: str, table: TableBirth, rows: pa.Table | None) -> None:
        schema = arrow_schema(table.columns)
        path = table_path(self.store, build, table.name)
        write_deltalake(
            path,
            schema.empty_table() if rows is None else rows.cast(schema),
            mode="append",
            storage_options=delta_options(path),
        )


TableBirth.__hash__ = lambda self: hash(self.name)  # type: ignore[method-assign]
