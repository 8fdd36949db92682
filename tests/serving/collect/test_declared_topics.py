"""The topics for which events are accepted, as the project declares them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kappa import Avro, Csv, Json, Topic
from kappa.base.errors import UsageError
from kappa.declare.topic_patterns import JoinedTopic, JoinedTopics, put_joined
from kappa.declare.values.reason import Rejected
from kappa.serving.collect.declared_topics import CollectedTopic, DeclaredTopics
from kappa.serving.collect.lines import Invalid, read_one, reply_of

ORDERS = Topic("orders", format=Avro("tests/data/order.avsc"), key="id")
SALES = Topic("sales", event="id string not null, amount int", format=Csv(), key="id")


def test_a_topic_of_avro_is_not_collected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="names orders, whose events are Avro"):
        DeclaredTopics(tmp_path, ["orders"], say=print, load=lambda _: {"orders": ORDERS})


def test_a_topic_with_the_framing_of_a_registry_is_not_collected(tmp_path: Path) -> None:
    topic = Topic("bids", event="id string", format=Json(framed=True))
    with pytest.raises(UsageError, match="names bids, whose events begin with a registry's id"):
        DeclaredTopics(tmp_path, ["bids"], say=print, load=lambda _: {"bids": topic})


def test_only_a_body_of_several_lines_is_answered_with_a_hint_at_batches() -> None:
    topic = CollectedTopic(Topic("bids", event="id string"))

    def answer(body: bytes) -> str:
        return reply_of(read_one(topic, body, "", 1000)).body.decode()

    assert "the event is not valid: the body is empty" in answer(b"")
    assert "the body is empty" in answer(b" \n")
    assert "several events" not in answer(b"") + answer(b"{no\n")
    assert "several events are sent a line each" in answer(b'{"id": "a"}\n{"id": "b"}\n')


PIPELINE = """
from pathlib import Path
from kappa import Table, Topic, count, pipeline

VISITS = Topic("visits", event=Path("schemas/visit.json"))
LOGS = Topic(pattern="logs[.].*", event="id string")


@pipeline(reads={"visits": VISITS, "logs": LOGS},
    writes=[Table("hits", keys=("id",), fold={"hits": count()})])
def web(visits, logs):
    return {"hits": visits.select("id").unionByName(logs.select("id"))}
"""


SINK = """
from kappa import Sink, Table, Topic, count, pipeline
IN = Topic("{reads}", event="id string not null", key="id")

@pipeline(reads={{"rows": IN}},
    writes=[Table("{name}_hits", keys=("id",), fold={{"hits": count()}}),
        Sink("{sends}", of="{name}_hits")])
def {name}(rows):
    return {{"{name}_hits": rows}}
"""


def test_a_topic_that_a_sink_writes_is_not_collected(tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    for name, reads, sends in (("one", "visits", "totals"), ("two", "totals", "more")):
        text = SINK.format(name=name, reads=reads, sends=sends)
        (tmp_path / "pipelines" / f"{name}.py").write_text(text, encoding="utf-8")

    with pytest.raises(UsageError, match="names totals, which the sink at .*one.py:7 writes"):
        DeclaredTopics(tmp_path, ["visits", "totals"], say=print)
    assert DeclaredTopics(tmp_path, ["visits"], say=print).topics.keys() == {"visits"}


def test_a_file_that_cannot_be_loaded_stops_the_collecting_of_its_topics_alone(
    tmp_path: Path,
) -> None:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "bad.py").write_text("import nowhere\n", encoding="utf-8")
    text = SINK.format(name="one", reads="visits", sends="totals")
    (tmp_path / "pipelines" / "one.py").write_text(text, encoding="utf-8")

    assert DeclaredTopics(tmp_path, ["visits"], say=print).topics.keys() == {"visits"}
    with pytest.raises(UsageError, match="bad.py:1: there is no module nowhere"):
        DeclaredTopics(tmp_path, ["visits", "orders"], say=print)


def put_schema(project: Path, kind: str) -> None:
    schema = {"type": "object", "properties": {"id": {"type": kind}}}
    (project / "schemas").mkdir(exist_ok=True)
    (project / "schemas" / "visit.json").write_text(json.dumps(schema))


def test_files_that_declarations_name_are_loaded_again_once_they_change(tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "web.py").write_text(PIPELINE)
    put_schema(tmp_path, "string")
    put_joined(tmp_path, JoinedTopics("logs[.].*", (JoinedTopic("logs.a", 1),)))
    said: list[str] = []
    declared = DeclaredTopics(tmp_path, ["visits", "logs.a"], say=said.append)
    event = b'{"id": 7}'
    first = declared.topics["visits"]
    with pytest.raises(Rejected):
        first.record(event)
    declared.reload()
    assert declared.topics["visits"] is first

    put_schema(tmp_path, "integer")
    declared.reload()
    assert declared.topics["visits"].record(event).value == event
    assert len(said) == 1

    # One that cannot be read leaves them as they were, and is not read again until it changes.
    (tmp_path / "schemas" / "visit.json").unlink()
    declared.reload()
    declared.reload()
    assert declared.topics["visits"].record(event).value == event
    assert [line.startswith("the declarations stay as they were") for line in said[1:]] == [True]
    put_schema(tmp_path, "string")
    declared.reload()
    assert declared.topics["visits"].record(b'{"id": "7"}').value == b'{"id": "7"}'

    put_joined(tmp_path, JoinedTopics("logs[.].*", (JoinedTopic("logs.b", 1),)))
    declared.reload()
    assert "names logs.a, and the project declares no such topic" in said[-1]


def test_a_line_of_csv_is_sent_as_it_is() -> None:
    topic = CollectedTopic(SALES)
    record = topic.record(b'"a17",3')
    assert (record.key, record.value) == (b"a17", b'"a17",3')
    with pytest.raises(Rejected):
        topic.record(b"a17,three")


HOSTILE = [
    '"\\ud800"', '"\\udc00\\ud800"', "NaN", "Infinity", "-Infinity", "1e400", "-1e400", "9" * 4000,
    "-" + "9" * 400, "0." + "1" * 4000, '"' + "9" * 4000 + '"', '"infinity"', '"-infinity"',
    '"10000-01-01T00:00:00Z"', '"9999-12-31T23:59:60Z"', '"-0043-03-15"', "[" * 5000, "{}", "[]",
    '"\\u0000"', "null", "true", '"true"', "-0.0", "1.10", '"1e9"', "253402300800000",
    "9223372036854775808", '"\x7f\u2028"', '["\\ud800"]', '{"\\ud800": 1}', '{"a": NaN}',
]  # fmt: skip
KINDS = (
    "string", "int", "bigint", "double", "float", "decimal(9,2)", "boolean", "date", "timestamp",
    "array<string>", "struct<a:int>",
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_any_value_is_answered_in_json(kind: str) -> None:
    """The answer about an invalid event is always valid JSON."""
    topic = CollectedTopic(Topic("bids", event=f"id string not null, c {kind}"))
    for value in HOSTILE:
        for body in (
            f'{{"id": "a", "c": {value}}}',
            f'{{"id": {value}}}',
            f'{{"id": "a", "c": 1, {value}: 2}}',
        ):
            lines = read_one(topic, body.encode(errors="surrogatepass"), "", 100_000)
            if isinstance(lines.outcomes[0], Invalid):
                answer = json.loads(reply_of(lines).body)
                assert answer["status"] == 422, body
                assert len(answer["title"] + answer.get("detail", "")) < 2_000, body[:100]
