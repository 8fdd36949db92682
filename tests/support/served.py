"""Builds that serve, made by hand, for tests of readers without a JVM."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake
from msgspec.structs import replace

from kappa.base.clock import now
from kappa.declare.values.arrow import arrow_schema
from kappa.serving.query.query import Answer, answer_query
from kappa.state.build import Birth, put_birth, read_birth, table_path
from kappa.state.files.address import delta_options
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.journal.events import GenerationMade, PipelineRetired, Receipt, Served
from kappa.state.journal.journal import Journal
from kappa.state.offsets import Offsets
from kappa.state.root import ensure_root
from kappa.state.store import Store
from kappa.state.table import TableBirth
from kappa.tables.lasting import sync_versions, vouched_lists
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
    """A store that knows whether a frontier was looked for before it was published."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.missed = threading.Event()

    def get(self, name: str) -> bytes | None:
        found = super().get(name)
        if found is None and "/frontier/" in name:
            self.missed.set()
        return found


class Platform:
    """Builds that serve, made by hand: births, Delta tables, frontiers and the journal."""

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
        journal = Journal(self.store)
        last, record = journal.last_served()
        before = record.event if record is not None else None
        generation, serving = (
            (before.generation, before.serving) if isinstance(before, GenerationMade) else (0, {})
        )
        build = f"{pipeline}-{generation + 1}"
        births = (
            *tables,
            *(() if any(each.name == "rejects" for each in tables) else (REJECTS_BIRTH,)),
        )
        put_birth(
            self.store,
            Birth(build, pipeline, "v1", {}, 1, {}, "", (), births, views or {}, {}, {}, "", "me"),
        )
        for table in births:
            self._write(build, table, tables.get(table))
        versions = dict.fromkeys((table.name for table in births), 0)
        self._publish(Frontier(1, build, 1, Offsets({"flights": {0: 12}}), versions, now()), None)
        event = Served(
            1,
            generation + 1,
            {**serving, pipeline: build},
            Receipt(pipeline, build, "v1", Offsets(), None, None),
        )
        assert journal.append(last + 1, event) is not None

    def retire(self, pipeline: str) -> None:
        """Takes a pipeline out of service, by the record alone."""
        last, record = Journal(self.store).last_served()
        assert record is not None
        assert isinstance(record.event, GenerationMade)
        serving = dict(record.event.serving)
        build = serving.pop(pipeline)
        event = PipelineRetired(
            pipeline,
            build,
            record.event.generation + 1,
            serving,
            read_birth(self.store, build).public_names,
            Offsets(),
            3600.0,
            record.event.generation,
        )
        assert Journal(self.store).append(last + 1, event) is not None

    def advance(self, build: str, table: TableBirth, rows: pa.Table) -> None:
        """Writes a table's next version, and publishes it."""
        self._write(build, table, rows)
        frontiers = Frontiers(self.store, build)
        last = frontiers.newest()
        assert last is not None
        versions = {**last.versions, table.name: last.versions[table.name] + 1}
        offsets = Offsets({"flights": {0: 24}})
        self._publish(Frontier(last.number + 1, build, 1, offsets, versions, now()), last)

    def _publish(self, frontier: Frontier, last: Frontier | None) -> None:
        """Publishes a frontier with the sums that a job's publisher would put into it."""
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
