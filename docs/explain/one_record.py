"""Walks three records through the packages, from their bytes to the answer of a query.

The program needs neither a broker nor a platform. The page one-record.md shows the output of the
program.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from kappa import Table, Topic, count, max_, pipeline
from kappa.engine.children.rehearsal import MemoryLog, Rehearsal, local_pipeline, served_rows
from kappa.records.decode.decode import decode_table
from kappa.records.decode.outcome import Fate
from kappa.state.offsets import Offsets
from kappa.state.slices import Slice
from kappa.tables.versions import files

# declare: what a user writes.
VISITS = Topic(
    "visits",
    key="visitor",
    event="visitor string not null, page string not null, happened_at timestamp not null",
)
HITS = Table("page_hits", keys=("page",), fold={"hits": count(), "last": max_("happened_at")})


@pipeline(reads={"visits": VISITS}, writes=[HITS])
def web(visits):  # noqa: ANN001, ANN201  # as a user writes it
    """Counts the visits of each page."""
    return {"page_hits": visits.where("page <> '/health'")}


def main() -> None:
    """Prints the result of each package for the records."""
    # kafka: the log. A log in memory gives the same raw records as a broker's.
    log = MemoryLog()
    for key, page, time in (
        ("ann", '"/"', "12:00"),
        ("bob", "7", "12:01"),
        ("ann", '"/"', "12:02"),
    ):
        event = f'{{"visitor":"{key}","page":{page},"happened_at":"2026-01-31T{time}:00Z"}}'
        log.add("visits", 0, event.encode(), key=key.encode())
    piece = Slice(1, 0, Offsets.zero({"visits": 1}), log.end)
    raw = log.read_records(piece)
    print("kafka    ", f"{raw.num_rows} records, offsets 0 to {log.end.at('visits', 0)}")

    # records: bytes become events, or rejects with a reason.
    decoded = decode_table(raw, VISITS, {}, {})
    for record in decoded.select(["_offset", "_fate", "page", "_reason", "_detail"]).to_pylist():
        offset, fate, page, _, detail = record.values()
        print("records  ", f"offset {offset}: {Fate(fate).name.lower()}, {detail or page}")

    with local_pipeline(web) as local, tempfile.TemporaryDirectory() as root:
        # engine: the function, the fold, a commit for each table, then one frontier.
        build = Rehearsal(Path(root), local, log, driver_rows=log.end.at("visits", 0))
        build.fold(log.end)
        frontier = build.publisher.newest
        print("engine   ", f"slice {frontier.slice} of leg {frontier.leg} is folded")

        # state: the frontier, by which readers see all tables at once.
        print("state    ", f"frontier {frontier.number}: offsets {frontier.offsets}")
        print("state    ", f"versions {dict(sorted(frontier.versions.items()))}")
        print("state    ", f"tally {frontier.tally['visits'][0]}")

        # tables: the files of exactly these versions.
        for writer in build.slices.writers:
            name = writer.birth.name
            found = files(writer.path, frontier.versions[name], frontier.file_lists[name])
            print("tables   ", f"{name}: {len(found)} file of {build.table(name).num_rows} row")

        # query: SQL over these files.
        for name, rows in served_rows(build).items():
            for row in rows:
                shown = [f"{row[key]}" for key in ("page", "hits", "last", "detail") if key in row]
                print("query    ", f"{name}: {', '.join(shown)}")
        build.close()


if __name__ == "__main__":
    main()
