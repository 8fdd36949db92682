"""Helpers for tests of pipelines without a broker: they compute tables, and check the laws.

    from kappa.testing import law_of_slices, some_events, tables_of

    def test_visits_are_counted_by_page():
        tables = tables_of(web, {"visits": [{"page": "/", "visitor": "ann"}]})
        assert tables["page_visits"] == [{"page": "/", "visits": 1}]

    def test_the_law_of_slices():
        law_of_slices(web, some_events(web, 200))

The law of slices: however the log is cut into contiguous slices, folding the slices one after the
other gives the same tables as folding the whole log as a single slice. So a replay in large slices
gives the same tables as a tail in small slices.

All helpers use a Spark session in this process. The fixture `warm_spark` keeps this session open
between tests (pytest_plugin.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from kappa.base.errors import Broken, UsageError
from kappa.declare.options import describe_value
from kappa.declare.pipeline import Pipeline
from kappa.declare.values.reason import FOLDED_REASONS
from kappa.engine.children.event_generator import (
    Event,
    encoded,
    event_of,
    read_events,
    sent,
    some_events,
)
from kappa.engine.children.law_check import LawBroken, hold_to_law, hold_views_to_law
from kappa.engine.children.rehearsal import MemoryLog, local_pipeline, rows_of_log
from kappa.tables.views.changes import SEVERAL_ROWS

__all__ = [
    "Event",
    "LawBroken",
    "law_of_slices",
    "law_of_views",
    "read_events",
    "some_events",
    "tables_of",
]

# With more slices than this, a check with a slice per event would take minutes.
_MOST_SLICES = 64
P = ParamSpec("P")
T = TypeVar("T")
_ONE_EACH = (
    "in a test, events need ids of their own, as those that send them make them:"
    ' some_events(..., distinct=("orders.id",))'
)
# The events of each topic, in the order of the log.
Events = Mapping[str, Iterable[Event | Mapping[str, Any]]]


def _short(check: Callable[P, T]) -> Callable[P, T]:
    """Decorates a test helper, so that pytest shows its errors without inner frames.

    If the error says that several rows of a maintained view have the same key, a sentence is added
    to the error's hint: the events of a test need distinct ids.
    """

    @wraps(check)
    def shortly(*given: P.args, **named: P.kwargs) -> T:
        __tracebackhide__ = True
        try:
            return check(*given, **named)
        except Broken as error:
            if SEVERAL_ROWS in error.message:
                error.hint += f"; {_ONE_EACH}"
            raise error.with_traceback(None) from None

    return shortly


@_short
def tables_of(pipeline: Pipeline, events: Events) -> dict[str, list[dict[str, Any]]]:
    """Folds events as a job does. Returns the rows that readers see, by table or view.

    `events` maps each topic of the `pipeline` to its events, in order. An event is an `Event`, or a
    mapping of field names to values. A mapping gets the key and the partition that a producer would
    choose. A row is a dict of its columns. The rows are ordered by their columns from left to
    right, nulls last. A date or timestamp that Python cannot represent is returned as text, such as
    "10000-01-01". The result includes views and the table `rejects`.

    Raises UsageError if `pipeline` is not a pipeline, or does not read one of the topics. Raises
    DeclarationError if a view cannot be read. Raises Broken if a maintained view cannot be
    computed, or if the function fails on an event and `on_error="stop"` is declared.

    Example:
        visit = {"visitor": "ann", "page": "/", "happened_at": "2024-01-31T12:00:00Z"}
        tables = tables_of(web, {"visits": [visit, visit]})
        assert tables["page_visits"] == [{"page": "/", "visits": 2}]
        assert tables["rejects"] == []
    """
    log = _log(pipeline, events)
    with local_pipeline(pipeline) as local:
        return rows_of_log(local, log)


@_short
def law_of_slices(
    pipeline: Pipeline, events: Events, *, cuts: int = 6, seed: int = 0, large: bool = True
) -> None:
    """Checks the law of slices for a `pipeline`: any cut of the log gives the same tables.

    `events` are given as for `tables_of`. The check folds the log in one slice per event (at most
    64 slices), and then in `cuts` random cuts; some of these slices are empty or are folded again.
    The check uses each method by which a job can compute a slice. Without `large`, the check omits
    the method for large slices, since this method takes ten seconds or more. The same `seed` gives
    the same cuts.

    Raises LawBroken, with the smallest cut found and the rows that differ. Raises UsageError if
    `pipeline` is not a pipeline, or if there are no events, or no valid events.

    Example:
        law_of_slices(web, some_events(web, 6), cuts=2)
    """
    log = _log(pipeline, events)
    _refuse_no_events(pipeline, log, "slices")
    with local_pipeline(pipeline) as local:
        held = hold_to_law(
            local, log, cuts=cuts, most_slices=_MOST_SLICES, by_spark=large, seed=seed
        )
    rejected = held.rejected.copy()
    for reason in FOLDED_REASONS:
        del rejected[reason]
    if rejected.total() == len(log.records):
        why = ", ".join(f"{reason} {count}" for reason, count in rejected.most_common())
        raise UsageError(
            f"none of the {len(log.records)} events is valid, "
            f"so nothing was held to the law: {why}",
            hint="send them as their topics declare them, keys too",
        )


@_short
def law_of_views(pipeline: Pipeline, events: Events, *, cuts: int = 6, seed: int = 0) -> None:
    """Checks the law of views: a maintained view always equals its query over the tables.

    `events` are given as for `tables_of`. The check folds the events in one slice, in one slice per
    event (at most 64 slices), and in `cuts` random cuts. After each slice, the check compares the
    stored rows of each maintained view with the rows of the view's query. The same `seed` gives the
    same cuts. Raises LawBroken, with the smallest cut found and the rows that differ. Raises
    UsageError if the pipeline has no maintained view, or if there are no events.

    Example:
        BUSY = View("busy", "select page from page_visits where visits > 1", keys=("page",))

        @pipeline(
            reads={"visits": VISITS},
            writes=[Table("page_visits", keys=("page",), fold={"visits": count()}), BUSY],
        )
        def watched(visits):
            return {"page_visits": visits}

        law_of_views(watched, some_events(watched, 6), cuts=2)
    """
    log = _log(pipeline, events)
    if not any(view.is_maintained for view in pipeline.views):
        raise UsageError(
            f"pipeline {pipeline.name} has no maintained view to hold to the law",
            hint='a view with keys is maintained: View("name", "select ...", keys=("id",))',
        )
    _refuse_no_events(pipeline, log, "views")
    with local_pipeline(pipeline) as local:
        hold_views_to_law(local, log, cuts=cuts, most_slices=_MOST_SLICES, seed=seed)


def _log(pipeline: Pipeline, events: Events) -> MemoryLog:
    if not isinstance(pipeline, Pipeline):
        raise UsageError(
            f"a test is given {describe_value(pipeline)}, which is not a pipeline",
            hint="give the function that @pipeline declares: from pipelines.web import web",
        )
    if not isinstance(events, Mapping):
        raise UsageError(
            f"pipeline {pipeline.name} is given {describe_value(events)}, which is not a mapping of"
            " events by topic",
            hint=f"give a mapping: {{{pipeline.topics[0].name!r}: [...]}}",
        )
    log = MemoryLog()
    topics = {topic.name: topic for topic in pipeline.topics}
    for name, found in events.items():
        if name not in topics:
            raise UsageError(
                f"pipeline {pipeline.name} reads no topic {name}",
                hint=f"it reads {', '.join(topics)}",
            )
        topic = topics[name]
        for event in (event_of(topic, each) for each in found):
            log.add(
                name,
                event.partition,
                sent(topic, event),
                key=encoded(event.key),
                ms=event.timestamp_ms,
                headers=event.headers,
            )
    return log


def _refuse_no_events(pipeline: Pipeline, log: MemoryLog, law: str) -> None:
    if not log.records:
        raise UsageError(
            f"pipeline {pipeline.name} is held to the law of {law} on no events",
            hint=f"some at random: some_events({pipeline.name}, 200)",
        )
