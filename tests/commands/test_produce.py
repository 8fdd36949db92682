"""`kappa produce` with files of events, on a real broker: the output equals the input."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from typing_in import Kappa

from kappa.commands.terminal.progress import bar
from kappa.kafka.client import Log

PIPELINE = """
from kappa import Avro, Csv, Protobuf, Table, Topic, count, pipeline

ORDERS = Topic("orders", key="id", format=Avro("order.avsc"), partitions=2)
SHIPPED = Topic("shipped", key="id", format=Protobuf("shipped.proto"))
SALES = Topic("sales", key="id", format=Csv(separator=";"), event="id string not null, n int")

@pipeline(reads={"orders": ORDERS, "shipped": SHIPPED, "sales": SALES},
          writes=[Table("seen", keys=("id",), fold={"n": count()})])
def shop(orders, shipped, sales):
    return {"seen": orders.select("id").union(shipped.select("id")).union(sales.select("id"))}
"""
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "string"}, {"name": "n", "type": ["null", "int"]}],
}
PROTO = 'syntax = "proto3"; message Shipped { string id = 1; optional int32 n = 2; }'
EVENTS = [{"id": "a", "n": 1}, {"id": "b", "n": None}, {"id": "c", "n": -3}]
TOPICS = ("orders", "shipped", "sales")


@pytest.fixture
def kappa(project: Path, lent: str, log: Log, kappa: Kappa) -> Kappa:
    """Returns a function that runs commands in a project whose topics are on a real broker."""
    (project / "kappa.toml").write_text(lent)
    (project / "pipelines" / "shop.py").write_text(PIPELINE)
    (project / "order.avsc").write_text(json.dumps(AVRO))
    (project / "shipped.proto").write_text(PROTO)
    for name in TOPICS:
        log.delete(name)
    kappa("topics", "create").has(0)
    return kappa


def write(folder: Path) -> None:
    (folder / "events.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in EVENTS))
    (folder / "events.csv").write_text("id,n\na,1\nb,\nc,-3\n")
    schema = pa.schema([("id", pa.string()), ("n", pa.int32())])
    pq.write_table(pa.Table.from_pylist(EVENTS, schema=schema), folder / "events.parquet")


@pytest.mark.jvm
@pytest.mark.parametrize("topic", TOPICS)
def test_events_of_each_kind_of_file_arrive_as_they_are_declared(
    kappa: Kappa, tmp_path: Path, topic: str
) -> None:
    write(tmp_path)
    for file in ("events.jsonl", "events.csv", "events.parquet"):
        form = file.rpartition(".")[2]
        sent = kappa("produce", topic, file, "--from", form, "-o", "json").has(0)
        assert sent.json()["acknowledged"] == 3

    tail = kappa("topics", "tail", topic, "--from", "beginning", "-o", "jsonl")
    seen = [json.loads(line) for line in tail.out.splitlines()]
    found = sorted((each["event"] for each in seen), key=lambda event: event["id"])
    assert found == [each for each in EVENTS for _ in range(3)]
    assert all(each["key"] == each["event"]["id"] for each in seen)


@pytest.mark.jvm
def test_what_does_not_fit_ends_it_with_its_place_and_the_number_before(
    kappa: Kappa, tmp_path: Path, log: Log
) -> None:
    (tmp_path / "bad.csv").write_text("id,n\na,1\nb,many\nc,3\n")

    kappa("produce", "orders", "bad.csv").has(
        2,
        'error: bad.csv line 3 is not an event: n is the text "many"',
        "; 1 record before it was acknowledged, nothing after it was sent",
    )
    assert sum(offset for *_, offset in log.end(["orders"]).items()) == 1


@pytest.mark.jvm
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("free", "x.parquet"), "the project declares no topic free"),
        (("orders", "-", "--from", "parquet"), "Parquet cannot be read from stdin"),
        (("orders", "nope.parquet"), "nope.parquet cannot be read"),
        (("orders", "nope.csv"), "nope.csv cannot be read"),
        (("orders", "-", "--from", "jsonl", "--envelope"), "--envelope and --from jsonl were"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    kappa: Kappa, arguments: tuple[str, ...], sentence: str
) -> None:
    kappa("produce", *arguments).has(2, sentence)


def test_a_bar_with_a_rate_is_on_a_terminal_and_nowhere_else() -> None:
    for terminal in (True, False):
        said = io.StringIO()
        console = Console(file=said, force_terminal=terminal, width=100)
        with bar("producing", 20, console=console) as show:
            show(5_000, 10)
        assert ("producing: 5,000 acknowledged, " in said.getvalue()) is terminal
        assert (" a second" in said.getvalue()) is terminal
        assert (" 50%" in said.getvalue()) is terminal
