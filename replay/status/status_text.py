"""Formats the status as rows, as the JSON of `-o json`, and as lines for display. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from kappa.base.clock import time_text
from kappa.base.units import count_of, pace_text
from kappa.replay.rollout.rollout import Phase
from kappa.replay.status.status import Status
from kappa.serving.query.render import Listing

if TYPE_CHECKING:
    # At run time these would import what it takes to ask a broker.
    from kappa.replay.status.run_records import Running
    from kappa.replay.status.status import BuildStatus
    from kappa.state.build_status import SliceProgress

_SHOWN_LIBRARIES = 3
_SHOWN_VIEWS = 3


def status_listing(status: Status, now: datetime) -> Listing:
    """Returns a listing with a row per live, idle and candidate build."""
    machines = (
        *("phase", "total", "offsets", "kept_until", "waits_for", "rate", "eta_seconds"),
        *("trouble", "verdict", "checks", "libraries", "late", "duplicate", "broken"),
        *("overflows", "slice", "paused_since", "view_costs", "drift", "step_times"),
    )
    columns = (
        *("pipeline", "role", "rollout", "build", "version", "state", "folded", "behind"),
        *("age_seconds", "rejected", *machines, "note"),
    )
    rows = tuple(_build_row(build, now) for build in status.builds)
    return Listing(
        columns,
        rows,
        wide=frozenset(machines),
        is_report=True,
        least=("version", "rollout", "age_seconds"),
        below="note",
        labels="build",
        empty="no pipeline has a build",
    )


def status_document(
    status: Status, running: Running | None, broker: str | None, http: str | None, now: datetime
) -> dict[str, Any]:
    """Returns the whole status as a JSON document.

    The document contains the supervisor, the broker, the HTTP server, the generation, warnings, and
    an object per live, idle and candidate build.
    """
    return {
        "generation": status.generation,
        "supervisor": None if running is None else {"pid": running.pid, "started": running.started},
        "broker": {"bootstrap_servers": broker, "error": status.broker_error or None},
        "http": http,
        "disk": status.disk or None,
        "silent": status.silent or None,
        "failing": [f"{each.text}: {each.shown_by}" for each in status.failing],
        "unread_topics": to_builtins(status.unread),
        "damaged": list(status.damaged),
        "builds": status_listing(status, now).row_objects(),
    }


def status_heading(
    status: Status, running: Running | None, broker: str | None, http: str | None = None
) -> str:
    """Returns one line each for supervisor, broker and HTTP, and then the warnings.

    `http` is the URL of the HTTP server, which may run without a supervisor. `broker` is the
    address of Kafka, or None if it is not known.
    """
    supervisor = (
        "kappa is not up: kappa up -d starts it"
        if running is None
        else f"kappa is up: process {running.pid} since {time_text(running.started)}"
    )
    kafka = status.broker_error or (
        "no broker is known" if broker is None else f"Kafka at {broker}"
    )
    served = (
        f"generation {status.generation}"
        if status.generation
        else "nothing is served yet: kappa deploy"
    )
    loud = "".join(
        f"WARNING: pipeline {each.pipeline}: build {each.build} ({each.role}) has "
        f"{each.beyond}: kappa rejects list --build {each.build}\n"
        for each in status.builds
        if each.beyond
    )
    loud += "".join(
        f"WARNING: {why}: all other tables are served; fix it and deploy again\n"
        for each in status.builds
        for why in each.broken
    )
    loud += "".join(f"WARNING: {each.text}: {each.mended_by}\n" for each in status.unread)
    loud += "".join(f"WARNING: {each.text}: {each.shown_by}\n" for each in status.failing)
    if status.silent:
        loud += f"WARNING: {status.silent}\n"
    loud = "".join(f"DAMAGED: {why}\n" for why in status.damaged) + loud
    if status.disk:
        loud = f"WARNING: {status.disk}; tables are served as they are\n{loud}"
    place = "" if http is None else f"HTTP at {http}\n"
    return f"{supervisor}\n{kafka}\n{place}{served}\n{loud}"


def lag_listing(status: Status, topics: Iterable[str]) -> Listing:
    """Returns a listing with a row per build and partition that the build reads.

    `topics` selects the topics; if `topics` is empty, all topics are listed. An end is null if the
    broker did not answer, or if the broker no longer has the topic.
    """
    only = frozenset(topics)
    rows = []
    for build in status.builds:
        wanted = build.topics & only if only else build.topics
        known = build.offsets.only(wanted)
        if status.end is not None:
            known = known.highest_with(status.end.only(wanted))
        for topic, partition, _ in known.items():
            at = build.offsets.at(topic, partition)
            end = None if status.end is None else status.end.at(topic, partition)
            behind = None if end is None else max(0, end - at)
            place = (build.pipeline, build.role, build.build, topic, partition)
            rows.append((*place, at, end, behind))
    columns = ("pipeline", "role", "build", "topic", "partition", "frontier", "end", "behind")
    return Listing(columns, tuple(rows), is_report=True, empty="no build reads these topics")


def _build_row(build: BuildStatus, now: datetime) -> tuple[Any, ...]:
    age, verified = (
        build.age_seconds(now),
        None if build.rollout is None else build.rollout.verified,
    )
    return (
        *(build.pipeline, build.role),
        None if build.rollout is None else build.rollout.number,
        *(build.build, build.version, _build_state(build), build.folded, build.lag),
        None if age is None else round(age, 1),
        build.rejected,
        None if build.rollout is None else str(build.rollout.phase),
        None if build.lag is None else build.folded + build.lag,
        *(build.offsets.plain(), build.kept_until, build.waits_for, build.rate),
        None if build.eta_seconds is None else round(build.eta_seconds, 1),
        build.trouble,
        None if verified is None else verified.verdict,
        []
        if verified is None
        else [{**to_builtins(check), "passed": check.passed} for check in verified.checks],
        *(build.libraries, build.late, build.duplicate, build.broken),
        [{"table": one.table, "column": one.column, "rows": one.rows} for one in build.overflows],
        None if build.slice is None else _slice_document(build.slice),
        None if build.pause is None else build.pause.at,
        to_builtins(build.view_costs),
        [
            # The beginning of a raw record is for whoever may read the topic.
            {name: value for name, value in to_builtins(each).items() if name != "value"}
            for each in build.drifts
        ],
        None if build.step_times is None else build.step_times.seconds,
        _build_note(build),
    )


def _slice_document(slice_: SliceProgress) -> dict[str, Any]:
    """Returns the progress of a job in its present slice as a JSON document.

    Slices are numbered from 1.
    """
    return {
        "number": slice_.slice + 1,
        "of": slice_.of,
        "records": slice_.offsets,
        "read": slice_.read,
        "step": slice_.step,
        "text": slice_.text,
    }


def _build_note(build: BuildStatus) -> str:
    """Describes in one line the facts about a build that a person should know, the worst first."""
    if build.stopped is not None:
        return build.stopped.text
    parts = [
        f"has {build.beyond}" if build.beyond else "",
        *build.broken,
        *(one.as_text for one in build.overflows),
        _drift_text(build),
        f"{build.pause.text}: kappa resume {build.pipeline} goes on" if build.pause else "",
        f"pipeline {build.retirement.text}" if build.retirement else "",
        build.base,
        f"serves the tables of build {build.tables_of}" if build.tables_of else "",
        build.trouble,
        "" if build.rollout is None else build.rollout.reason,
        "" if build.slice is None else build.slice.text,
        f"waits for {build.waits_for}" if build.waits_for else "",
    ]
    if (
        build.reached is not None
        and build.rollout is not None
        and build.rollout.phase is Phase.REPLAYING
    ):
        parts.append(pace_text(*build.reached, build.rate))
    parts += [
        f"{each.count:,} offsets of {each.topic} partition {each.partition} are held back by a "
        f"transaction that is open since offset {each.offset}"
        for each in build.held_back
    ]
    if build.rests:
        in_turns = build.role == "idle"
        parts.append(f"rests{', and folds in turns' if in_turns else ' until a record comes'}")
    if build.kept_until is not None and build.rollout is None:
        parts.append(f"kept until {time_text(build.kept_until)}")
    parts += [
        f"{count:,} {what}"
        for count, what in ((build.late, "late"), (build.duplicate, "duplicate"))
        if count
    ]
    parts.append(_views_text(build))
    if build.libraries:
        more = (
            f" and {len(build.libraries) - _SHOWN_LIBRARIES} more"
            if len(build.libraries) > _SHOWN_LIBRARIES
            else ""
        )
        parts.append(
            f"born with other libraries: {', '.join(build.libraries[:_SHOWN_LIBRARIES])}{more}"
        )
    return "; ".join(each for each in parts if each)


def _drift_text(build: BuildStatus) -> str:
    """Describes the newest drift of a build, and counts the older ones.

    Returns "" if the build has no drift.
    """
    if not build.drifts:
        return ""
    *others, newest = build.drifts
    proof = f", first in {newest.proof}" if newest.proof else ""
    more = f", and {count_of(len(others), 'other drift')}" if others else ""
    return f"drift: {newest.text}{proof}{more}"


def _views_text(build: BuildStatus) -> str:
    """Describes the time that the last slice took for each maintained view, the longest first."""
    by_cost = build.views_by_cost
    told = [
        f"{view} {cost.seconds * 1000:,.0f} ms {cost.way}" for view, cost in by_cost[:_SHOWN_VIEWS]
    ]
    rest = by_cost[_SHOWN_VIEWS:]
    if rest:
        told.append(f"{len(rest)} more {sum(cost.seconds for _, cost in rest) * 1000:,.0f} ms")
    return f"last slice of views: {', '.join(told)}" if told else ""


def _build_state(build: BuildStatus) -> str:
    if build.stopped is not None:
        return "stopped"
    if build.rollout is None:
        standing = "serving" if build.role == "live" else "kept"
        return standing if build.pause is None else f"{standing}, paused"
    if build.rollout.phase is Phase.REPLAYING and build.reached is not None:
        done, total = build.reached
        return f"{build.rollout.phase}, {100 * done // max(1, total)} % read"
    return str(build.rollout.phase)
