"""The subscriber of the changes cell: follows a table by server-sent events until its input ends.

    python subscriber.py URL TABLE OUT

The subscriber computes the table's rows only from change sets. For each change set, it writes a
line of JSON to `OUT.jsonl`: `{"at": seconds, "wall": ..., "begun": ..., "kind": ..., "changes":
..., "offsets": {...}}`. `at` is the time at which the whole change set had arrived, by the clock
that all processes of a machine share. `wall` is the same time in seconds since 1970, and `begun` is
the time at which the change set began to arrive, also since 1970. The rows are parsed after these
times are taken. At the end, the subscriber writes the table's rows to `OUT.parquet`.
"""

from __future__ import annotations

import json
import sys
import time
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from demo.processes.end_of_input import stop_at_end_of_input

url, table, out = sys.argv[1:4]
place, stop = urlsplit(url), stop_at_end_of_input()
connection = HTTPConnection(place.hostname or "", place.port, timeout=900)
connection.request("GET", f"/api/v1/tables/{table}/changes")
response = connection.getresponse()
assert response.status == 200, response.read()
rows: dict[str, dict[str, object]] = {}


def follow() -> None:
    fields, pieces = dict[str, bytes](), list[bytes]()
    with Path(f"{out}.jsonl").open("w", encoding="utf-8") as lines:
        while line := response.readline():
            name, _, value = line.rstrip(b"\n").partition(b": ")
            if name:
                fields[name.decode()] = value
                continue
            match fields.pop("event", b""):
                case b"begin":
                    begun = time.time()
                    head, pieces = json.loads(fields["data"]), []
                case b"rows":
                    pieces.append(fields["data"])
                case b"commit":
                    at, wall = time.monotonic(), time.time()
                    apply(head, pieces)
                    # Whoever started it reads along: what it reads of has been applied.
                    named = {name: head[name] for name in ("kind", "changes", "offsets")}
                    times = {"at": at, "wall": wall, "begun": begun}
                    lines.write(json.dumps({**times, **named}) + "\n")
                    lines.flush()
                    pieces = []


def apply(head: dict[str, object], pieces: list[bytes]) -> None:
    if head["since"] is None:
        rows.clear()
    keys = head["keys"]
    for piece in pieces:
        for change in json.loads(piece):
            row = change["after"] or change["before"]
            key = json.dumps([row[key] for key in keys])
            if change["after"] is None:
                del rows[key]
            else:
                assert (key in rows) == (change["op"] == "update"), change
                rows[key] = change["after"]


thread = Thread(target=follow, daemon=True)
thread.start()
while not stop.wait(0.1):
    assert thread.is_alive(), "the server has ended it"
pq.write_table(pa.Table.from_pylist([*rows.values()]), f"{out}.parquet")
