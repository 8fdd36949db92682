"""A pipeline that breaks the law of slices is refused before its replay (law.py)."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import declared

from kappa.base.errors import VerificationFailed
from kappa.base.sections import VerifySettings
from kappa.base.settings import Settings
from kappa.declare.topic import Topic
from kappa.kafka.client import Log
from kappa.kafka.producer import ProducedRecord
from kappa.kafka.reader import Record
from kappa.replay.rollout.law import ensure_lawful
from kappa.replay.rollout.plan.declared_pipelines import describe_declared_pipelines
from kappa.replay.rollout.plan.facts import Declared
from kappa.replay.rollout.plan.log_sample import sample_ranges
from kappa.replay.rollout.plan.make_plan import make_plan
from kappa.replay.rollout.plan.observe import gather_facts
from kappa.replay.rollout.plan.plan import Change, Plan, PlanStep
from kappa.state.offsets import Offsets
from kappa.state.store import Store

# Each row has the size of its batch, which depends on where the slices end.
SIZED = """
from pyspark.sql import functions as F
from kappa import Table, Topic, count, max_, pipeline

HITS = Topic("{topic}", partitions=2, event="page string not null, n int")

@F.pandas_udf("int")
def size(values):
    return values * 0 + len(values)


@pipeline(
    reads={{"hits": HITS}},
    writes=[Table("pages", keys=("page",), fold={{"hits": count(), "most": max_("n")}})],
)
def web(hits):
    return {{"pages": hits.withColumn("n", {n})}}
"""


@given(
    st.dictionaries(
        st.integers(0, 5), st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=4
    ),
    st.integers(1, 200),
)
def test_sample_is_begin_middle_and_end(parts: dict[int, tuple[int, int]], at_most: int) -> None:
    """The sample has the beginning, the middle and the end of each partition."""
    begin = Offsets({"t": {partition: first for partition, (first, _) in parts.items()}})
    ends = {partition: first + length for partition, (first, length) in parts.items()}
    end = Offsets({"t": ends})

    found = list(sample_ranges(begin, end, at_most))

    for partition, (first, length) in parts.items():
        ranges = ((start.at("t", partition), stop.at("t", partition)) for start, stop in found)
        taken = [offset for start, stop in ranges for offset in range(start, stop)]
        assert taken == sorted(set(taken))
        assert set(taken) <= set(range(first, first + length))
        if length:
            assert {first, first + length - 1} <= set(taken) or len(taken) < 2
    assert sum(stop.distance(start) for start, stop in found) <= max(at_most, 3 * len(parts))


def write(project: Path, pipeline: str, text: str) -> None:
    """Writes the file of a pipeline into a project."""
    (project / "kappa.toml").touch()
    (project / "pipelines").mkdir(exist_ok=True)
    (project / "pipelines" / f"{pipeline}.py").write_text(text, encoding="utf-8")


@pytest.mark.jvm
def test_a_pipeline_that_breaks_it_is_refused_and_one_that_does_not_is_tried_once(
    tmp_path: Path, log: Log, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipeline that breaks the law is refused, with table, key and column.

    A lawful pipeline is tried only once.
    """
    # On a busy machine the time of a deploy is over before the law is broken.
    settings = Settings(project=tmp_path, verify=VerifySettings(law_seconds=480))
    store = Store(settings.root_url)
    log.create(Topic(topic_name, partitions=2, event="page string not null, n int"))
    home = b'{"page": "home", "n": 1}'
    log.produce((ProducedRecord(home, partition=number % 2) for number in range(60)), topic_name)
    for name, n in {"web": 'size("n")', "even": 'F.col("n") + 1'}.items():
        text = SIZED.format(topic=topic_name, n=n).replace("def web", f"def {name}")
        write(tmp_path, name, text.replace('"pages"', f'"pages_of_{name}"'))
    plan = make_plan(gather_facts(settings, store, log))
    said: list[str] = []
    shown: list[str] = []

    place = ".*table pages_of_web, key 'home', column most"
    broken = rf"web\.py:12: pipeline web breaks the law of slices: {place}"
    with pytest.raises(VerificationFailed, match=broken) as refused:
        ensure_lawful(settings, store, log, plan, say=said.append, show=shown.append)
    assert refused.value.exit_code == 4
    assert shown[:2] == ["reads a sample of the topics", "starts Spark"]
    assert [
        line
        for line in shown
        if re.match(r"runs even on a sample: in \d+ slices?, way \d of 2 ", line)
    ]
    wanted = r"even: 60 records give the same rows in 2 of 2 ways to cut them, \d+ s"
    assert [line for line in said if re.search(wanted, line)]

    lawful, wrong = sorted(plan.steps, key=lambda step: step.pipeline)
    assert (lawful.pipeline, wrong.pipeline) == ("even", "web")
    assert store.names("cache/law") == (f"cache/law/{lawful.version}.json",)
    # From here on, trying a version again would fail: no process can start.
    monkeypatch.setattr(sys, "executable", "/nonexistent")
    ensure_lawful(settings, store, log, replace(plan, steps=(lawful,)))
    with pytest.raises(FileNotFoundError):
        ensure_lawful(settings, store, log, plan)
    # It was not tried in large slices: a smaller replay had none.
    large = replace(lawful, records=settings.engine.short_records + 1)
    with pytest.raises(FileNotFoundError):
        ensure_lawful(settings, store, log, replace(plan, steps=(large,)))
    # More records exist now to try the same version on.
    log.produce((ProducedRecord(home) for _ in range(9)), topic_name)
    with pytest.raises(FileNotFoundError):
        ensure_lawful(settings, store, log, replace(plan, steps=(lawful,)))


def test_hasty_version_is_not_kept_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A law that was not tried to its end within `verify.law_seconds` is not recorded as tried.

    The law once ran for minutes. Now each pipeline gets a share of `verify.law_seconds`.
    """
    asked: list[object] = []

    def ask(*_: object, **how: Callable[..., Any]) -> dict[str, dict[str, Any]]:
        asked.extend([how["seconds"](1), how["more"]()["seconds"] < 0.1])
        endless = how["cut"]("endless", None)
        return {"web": {"tried": 0, "of": 4, "seconds": 1.5}, "endless": endless}

    monkeypatch.setattr("kappa.replay.rollout.law.ask_program", ask)
    store = Store(Settings(project=tmp_path).root_url)
    short = Settings(project=tmp_path, verify=VerifySettings(law_seconds=0.1))
    steps = tuple(
        PlanStep(name, Change.NEW, f"v of {name}", None, None, declared=declared(name))
        for name in ("web", "endless")
    )
    said: list[str] = []

    ensure_lawful(short, store, _TwentyRecords(), Plan(steps, (), 0, 0), say=said.append)

    assert asked == [0.1, True]
    over = "the time is over (verify.law_seconds: 0.1)"
    assert said[-2:] == [
        f"law of slices: web: 20 records give the same rows in 0 of 4 ways to cut them; {over}",
        f"law of slices: endless: no way to cut records into slices was tried to its end; {over}",
    ]
    assert store.names("cache/law") == ()


class _TwentyRecords:
    """A log of twenty records in one partition."""

    def beginning(self, topics: Iterable[str]) -> Offsets:
        return Offsets.zero(dict.fromkeys(topics, 1))

    def end(self, topics: Iterable[str]) -> Offsets:
        return Offsets({topic: {0: 20} for topic in topics})

    def records(self, topics: Iterable[str], start: Offsets, end: Offsets) -> Iterator[Record]:
        for topic in topics:
            for offset in range(start.at(topic, 0), end.at(topic, 0)):
                yield Record(topic, 0, offset, 0, b"a", b"{}", ())


# Its rows are few while there are none in the log.
EXPLODES = """
from kappa import Table, Topic, View, pipeline

ORDERS = Topic("{name}", kind="retained", event="id string not null, n int", key="id", partitions=1)


@pipeline(
    reads={{"orders": ORDERS}},
    writes=[
        Table("{name}_orders", latest=ORDERS),
        View("{name}_each", "{rows}", keys=("id", "i")),
    ],
)
def {name}(orders):
    return {{}}
"""


@pytest.mark.jvm
@pytest.mark.long
def test_exploding_view_is_ended_at_its_share(tmp_path: Path) -> None:
    """A view whose rows explode is stopped after its share of time; the others are tried."""
    for name, rows in (
        ("bad", "select id, i from bad_orders, range(2000000000) each(i)"),
        ("good", "select id, unnest(range(n)) as i from good_orders"),
        ("huge", "select id, unnest(range(n::bigint * 1000000000)) as i from huge_orders"),
    ):
        write(tmp_path, name, EXPLODES.format(name=name, rows=rows))
    settings = Settings(project=tmp_path, verify=VerifySettings(law_seconds=90))
    store = Store(settings.root_url)
    found = describe_declared_pipelines(settings, store).found
    steps = tuple(
        PlanStep(name, Change.NEW, f"v of {name}", None, None, declared=each)
        for name, each in found.items()
        if isinstance(each, Declared)
    )
    said: list[str] = []

    with pytest.raises(VerificationFailed, match=r"huge\.py:11: view huge_each cannot be computed"):
        ensure_lawful(settings, store, _Orders(), Plan(steps, (), 0, 0), say=said.append)

    assert len(steps) == 3
    assert [
        line
        for line in said
        if "bad: no way to cut records into slices was tried to its end" in line
    ], said
    assert [line for line in said if re.search("good: 20 records .* in [1-9] of . ways", line)]


class _Orders(_TwentyRecords):
    """A log of twenty orders."""

    def records(self, topics: Iterable[str], start: Offsets, end: Offsets) -> Iterator[Record]:
        for each in super().records(topics, start, end):
            value = b'{"id": "%d", "n": 2}' % each.offset
            yield replace(each, key=b"%d" % each.offset, value=value)
