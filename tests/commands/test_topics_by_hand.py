"""Laws of topics by hand: they are shown as they are, and a breaking change is refused."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from page_world import World
from typing_in import Kappa

from kappa.kafka.client import Log
from kappa.kafka.producer import ProducedRecord

pytestmark = pytest.mark.jvm

PIPELINE = """
from kappa import Table, Topic, count, pipeline

VISITS = Topic("visits", key="id", partitions=2, event="id string not null, at timestamp",
               config={{"max.message.bytes": "{most}"}})
FREE = Topic("free", event="id string", partitions={partitions})

@pipeline(reads={{"visits": VISITS, "free": FREE}},
          writes=[Table("hits", keys=("id",), fold={{"n": count()}})])
def sites(visits, free):
    return {{"hits": visits}}
"""
GOOD = ProducedRecord(
    b'{"id": "a", "at": "2026-01-01T00:00:00Z"}', b"a", 1_700_000_000_000, (("trace", b"1"),), 0
)
BAD = ProducedRecord(b"{", b"b", 1_700_000_001_000, (), 1)
NEWER = ProducedRecord(b'{"id": "a", "at": null}', b"a", 1_700_000_002_000, (), 0)


@pytest.fixture
def kappa(project: Path, lent: str, log: Log, kappa: Kappa) -> Kappa:
    """Returns a function that runs commands; the topics are on a real broker, one of them read."""
    world = World(project)
    world.build("web-1")
    world.goes_live("web-1", 1)
    (project / "kappa.toml").write_text(lent)
    declare(project)
    for name in ("visits", "free", "copy"):
        log.delete(name)
    kappa("topics", "create").has(0)
    log.produce([GOOD, BAD, NEWER], "visits")
    return kappa


def declare(project: Path, *, most: int = 1_048_588, partitions: int = 2) -> None:
    text = PIPELINE.format(most=most, partitions=partitions)
    (project / "pipelines" / "sites.py").write_text(text)


def test_tail_shows_records_as_they_are_declared(kappa: Kappa) -> None:
    shown = kappa("topics", "tail", "visits").out.splitlines()
    assert [line.split("  ")[0] for line in shown] == ["0@0", "1@0", "0@1"]
    assert shown[0].startswith("0@0  2023-11-14T22:13:20.000Z  a  {")
    assert shown[0].endswith("  trace:1")
    assert "  {  rejected, malformed_json: " in shown[1]

    lines = kappa("topics", "tail", "visits", "-o", "jsonl", "-n", "2").out.splitlines()
    assert [json.loads(line)["offset"] for line in lines] == [0, 1]
    assert json.loads(lines[1])["event"] == {"id": "a", "at": None}

    def places(*options: str) -> list[str]:
        out = kappa("topics", "tail", "visits", *options).out
        return [line.split("  ")[0] for line in out.splitlines()]

    assert places("--partition", "1") == ["1@0"]
    assert places("--key", "a", "-n", "1") == ["0@1"]
    assert places("--where", "id=a") == ["0@0", "0@1"]
    assert places("--where", "at=2026-01-01T00:00:00Z") == ["0@0"]
    assert places("--from", "2023-11-14T22:13:22Z") == ["0@1"]
    assert places("--from", "1") == ["0@1"]
    assert sorted(places("--from", "visits:0=1,visits:1=0")) == ["0@1", "1@0"]
    assert sorted(places("--from", "0=1")) == ["0@1", "1@0"]
    assert places("--from", "end") == []


def test_tail_goes_on_with_what_comes(
    kappa: Kappa, log: Log, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from kappa.replay.status.topics import records

    seen, enough = list[str](), threading.Event()
    follows = records.following

    def until_enough(*given: object):  # type: ignore[no-untyped-def]
        # By now it is fixed from where on is followed.
        thread.start()
        for record in follows(*given):  # type: ignore[arg-type]
            yield record
            seen.append(str(record.key))
            if len(seen) == 2:
                enough.set()
                return

    monkeypatch.setattr(records, "following", until_enough)

    def produce() -> None:
        for number in range(2):
            log.produce([ProducedRecord(b"{}", str(number).encode(), None, (), number)], "visits")

    thread = threading.Thread(target=produce)
    followed = kappa("topics", "tail", "visits", "-f", "-n", "0")
    thread.join()

    assert enough.is_set()
    assert sorted(seen) == ["b'0'", "b'1'"]
    assert len(followed.out.splitlines()) == 2


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (("tail", "nope"), "there is no topic nope on the broker", 2),
        (("tail", "visit"), "did you mean visits? see: kappa topics list", 2),
        (("describe", "nope"), "there is no topic nope on the broker", 2),
        (("delete", "nope", "--yes"), "there is no topic nope on the broker", 2),
        (("lag", "nope"), "there is no topic nope on the broker", 2),
        (("export", "nope", "-"), "there is no topic nope on the broker", 2),
        (("tail", "visits", "-p", "7"), "topic visits has no partition 7", 2),
        (("tail", "visits", "--where", "x=1"), "topic visits has no field x", 2),
        (("tail", "visits", "--where", "id"), "'id' is not a condition", 2),
        (("tail", "visits", "--from", "yesterday"), "'yesterday' is not a time", 2),
        (("tail", "visits", "--from", "other:0=1"), "is of another topic than visits", 2),
        (("alter", "visits", "--set", "x"), "'x' is not a setting", 2),
        (("alter", "visits", "--partitions", "1", "--yes"), "Kafka cannot take any away", 2),
        (("alter", "free", "--set", "retention.ms=soon", "--yes"), "correct the setting", 1),
        (("alter", "free", "--set", "retention.ms=5"), "there is no terminal to ask on", 7),
        (("import", "visits", "nope.parquet"), "nope.parquet cannot be read", 2),
        (("import", "nope", "/dev/null"), "there is no topic nope on the broker", 2),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    kappa: Kappa, arguments: tuple[str, ...], said: str, code: int
) -> None:
    ended = kappa("topics", *arguments)

    assert said in ended.err
    assert ended.out == ""
    assert ended.code == code


def test_describe_and_lag_show_what_is_declared_there_and_used(
    kappa: Kappa, tmp_path: Path
) -> None:
    declare(tmp_path, most=2_000_000)
    text = kappa("topics", "describe", "visits").out
    assert "2 partitions" in text
    assert "max.message.bytes=1048588, declared as 2000000" in text
    assert "pipeline web reads it (live build web-1)" in text

    document = json.loads(kappa("topics", "describe", "visits", "-o", "json").out)
    assert [each["end"] for each in document["partitions"]] == [2, 1]
    assert document["declared"]["config"]["retention.ms"] == "-1"

    lag = json.loads(kappa("topics", "lag", "visits", "-o", "json").out)
    assert [(each["partition"], each["frontier"], each["end"]) for each in lag] == [
        (0, 1000, 2),
        (1, 500, 1),
    ]
    assert [each["behind"] for each in lag] == [0, 0]


def test_alter_sets_what_is_named_or_declared_and_refuses_what_breaks(
    kappa: Kappa, log: Log, tmp_path: Path
) -> None:
    declare(tmp_path, most=2_000_000, partitions=3)
    altered = kappa("topics", "alter", "visits", "--yes")
    assert "max.message.bytes=2000000, instead of 1048588" in altered.err
    assert log.config("visits")["max.message.bytes"] == "2000000"
    assert "is so already" in kappa("topics", "alter", "visits").err
    # Nobody uses it, and it has no keys.
    kappa("topics", "alter", "free", "--yes").has(0)
    assert log.must_have("free").partitions == 3

    kappa("topics", "alter", "visits", "--partitions", "4", "--yes").has(
        6, "a key's later records would be in another partition"
    )
    compacted = kappa("topics", "alter", "visits", "--set", "cleanup.policy=compact", "--yes")
    assert "Kafka drops all but the latest record of each key" in compacted.err
    assert log.must_have("visits").partitions == 2
    assert log.config("visits")["cleanup.policy"] == "delete"


def test_delete_refuses_what_a_pipeline_reads_unless_it_is_named(kappa: Kappa, log: Log) -> None:
    refused = kappa("topics", "delete", "visits", "--yes")
    assert "topic visits is used: pipeline web reads it (live build web-1)" in refused.err
    assert "--allow web" in refused.err
    assert "there is no terminal to ask on" in kappa("topics", "delete", "free").err
    assert {"visits", "free"} <= log.topics().keys()

    kappa("topics", "delete", "visits", "--allow", "web", "--yes").has(0)
    assert "visits" not in log.topics()


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_records_go_out_and_back_by_commands(kappa: Kappa, log: Log, form: str) -> None:
    from kappa import Topic

    config = {"message.timestamp.type": "CreateTime"}
    log.create(Topic("copy", event="id string", partitions=2, config=config))
    file = f"visits.{form}"
    assert ": 3 records of visits" in (kappa("topics", "export", "visits", file, "--decoded").err)
    assert "is there already" in kappa("topics", "export", "visits", file).err
    done = kappa("topics", "import", "copy", file, "--keep-partitions", "-o", "json")
    assert json.loads(done.out)["acknowledged"] == 3

    def there(topic: str) -> str:
        return kappa("topics", "export", topic, "-").out

    assert sorted(there("copy").splitlines()) == sorted(there("visits").splitlines())
