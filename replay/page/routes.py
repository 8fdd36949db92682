"""The addresses of all pages: overview, rollouts, history, data and boards.

For each request, a function observes the platform once, computes the values of a page, and renders
the page. A request makes no decision and changes nothing. A page offers actions (promote, abandon,
undo, a query); for these, the scripts of the page send requests to the API.

The file of a board is read for each request, so a reload of the page shows the changes in the file.
The queries of a board run once for all clients that watch the board.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import parse_qs, quote, urlencode

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import StreamingResponse
from fastapi.routing import APIRoute

from kappa.base.errors import DeclarationError, KappaError, UsageError
from kappa.base.sql import quoted
from kappa.base.units import size
from kappa.code.names import written_pipelines
from kappa.declare.alert import KAPPA
from kappa.declare.board import Board, board_name, boards_in
from kappa.declare.options import REJECTS
from kappa.records.redrive import parse_position
from kappa.replay.page.alerts import message_fields, notice_rows, sorted_alerts
from kappa.replay.page.api import desk_of
from kappa.replay.page.boards import BoardAnswer, answer_board, is_behind
from kappa.replay.page.build_rates import WINDOW, BuildHistories, rate_of
from kappa.replay.page.code_changes import ChangedPart, code_changes
from kappa.replay.page.first_steps import first_steps, sample_board
from kappa.replay.page.graph_layout import URGENT, DrawnNode, draw_graph
from kappa.replay.page.graph_states import graph_states, with_folded_pipelines, worst_first
from kappa.replay.page.open_matters import (
    JOB_MATTERS,
    OpenMatter,
    open_matters,
    superseded_failures,
)
from kappa.replay.page.overview import (
    changes_text,
    pipeline_cards,
    pipeline_list,
)
from kappa.replay.page.queries import (
    LONGEST_IN_ADDRESS,
    PersonsAnswer,
    answer_person,
    csv_answer,
    marked_query,
    mended_query,
    queried_tables,
    sample_queries,
)
from kappa.replay.page.rollout import (
    RolloutView,
    changed_views,
    rollout_view,
    serves_now,
    service_actions,
    undo_offer,
)
from kappa.replay.page.samples import (
    SampledTable,
    counted_parts,
    outlet_parts,
    sampled_tables,
    samples_of,
)
from kappa.replay.page.states import (
    Health,
    alert_health,
    health_of,
    phase_health,
    role_word,
    rollout_health,
    serving_health,
    topic_health,
)
from kappa.replay.page.table import (
    TableView,
    boards_naming,
    pending_change,
    table_checks,
    table_view,
    typed_name,
)
from kappa.replay.page.table_rows import Match, RowsPage, RowsRequest, ask_rows
from kappa.replay.page.timeline import KINDS as KINDS_OF_MOMENTS
from kappa.replay.page.timeline import timeline_moments, undos_to
from kappa.replay.page.topic import (
    RecordSearch,
    TopicUsage,
    TopicView,
    as_text,
    cut_length,
    topic_rates,
    topic_usage,
    topic_view,
)
from kappa.replay.rollout.generation import code_of, generation_details, retired_text, serving_in
from kappa.replay.rollout.rollout import Phase, Rollout
from kappa.replay.rollout.rollout_numbers import rollout_of_number
from kappa.replay.rollout.state import State, soak_end
from kappa.replay.status.alerts import alert_statuses, shown_alerts, shown_notices
from kappa.replay.status.column_graph import ColumnOrigin, column_origins
from kappa.replay.status.graph import (
    CHANGED,
    JOINED,
    KINDS,
    NEW,
    READS,
    REMOVED,
    REPLAYED,
    ProjectGraph,
    nodes_around,
    observe_graph,
    outline_of_graph,
    part_of_graph,
)
from kappa.replay.status.logs import (
    OWN_LOGS,
    LogEnd,
    LogLevel,
    build_logs,
    log_columns,
    log_end,
    log_file,
    log_files,
    log_part,
    place_at,
)
from kappa.replay.status.outgoing_changes import OutgoingChanges, sends_at_switch, sent_in
from kappa.replay.status.status_cache import SharedLooks
from kappa.replay.status.topics.details import TopicDetails, observe_details
from kappa.replay.status.topics.topic_growth import TopicRates
from kappa.serving.access.roles import Act, may
from kappa.serving.http import login
from kappa.serving.http.app_state import place_of, stand_of
from kappa.serving.http.bounds import client_of, identity_in
from kappa.serving.http.page.render import HEADERS, page_html, static_router
from kappa.serving.http.problem import HttpError, problem_of
from kappa.serving.http.rights import asker, needs, rejects_asked, tables_in_path
from kappa.serving.outlets.sinks.sink_status import sink_statuses
from kappa.serving.query.pin.moments import AtGeneration, parse_time
from kappa.serving.query.reader.errors import TooMuch
from kappa.serving.query.reader.table_sql import schema_of
from kappa.serving.query.reader.views import tables_named
from kappa.serving.query.redrive import export_line, is_mendable
from kappa.serving.query.rejects import Reject, RejectFilter, newest_rejects
from kappa.serving.query.tables import ServedTable, served_tables
from kappa.state.build import Birth, read_birth
from kappa.state.build_status import read_view_costs
from kappa.state.journal.events import PipelineRetired
from kappa.state.journal.journal import JournalView
from kappa.state.lease import sorted_leases

if TYPE_CHECKING:
    from kappa.replay.status.status import BuildStatus, FailingOutlet, Status

# When the route of this thread began, in seconds of the thread's own time.
_begun: ContextVar[float] = ContextVar("begun", default=0.0)


class _TimedRoute(APIRoute):
    """A route that records the thread's CPU time at the beginning of a request."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **given: Any) -> None:
        @functools.wraps(endpoint)
        def begin(*values: Any, **named: Any) -> Any:
            _begun.set(time.thread_time())
            return endpoint(*values, **named)

        super().__init__(path, begin, **given)


router = APIRouter(include_in_schema=False, route_class=_TimedRoute)
ROUTERS = (router, static_router, login.router)
# So many fit a screen or two; the API has all.
_MOMENTS = 100
_REJECTS = 50
_ALERTS = 50
# The jobs that do not run, and the superseded failures, that the overview names.
_STOPPED = 5
_SUPERSEDED = 10
_LETTERS = 20
# The offsets of more partitions are folded.
_OPEN_OFFSETS = 8
# More dead letters of an alert are folded.
_OPEN_LETTERS = 5
# The part of a log that is shown: a log may be of any size, and so may a line of a log.
_LINES = 500
_LOG_BYTES = 1 << 20
_FILE_BLOCK = 1 << 16
_LINE_CHARACTERS = 2_000
# A place in a file has fewer digits.
_PLACE_DIGITS = 16
# More partitions of a topic are not listed.
_SHOWN_PARTITIONS = 100
# What the address of a topic's page asks of records, beside the partition.
_SEARCHED = ("start", "before", "key", "value", "order")
# The number of a partition has fewer digits.
_DIGITS = 10
# More topics are listed without the facts that need a request each.
_DETAILED_TOPICS = 200
# More nodes make a picture that nobody reads.
_NODES = 250
# With more pipelines, the healthy pipelines are folded.
_OPEN_PIPELINES = 6
# The sizes of a picture in percent; without one, it fits its window.
_ZOOMS = (50, 100, 150, 200)
# What a rollout does to a node of the graph, for people.
_LEGEND = {
    NEW: "new",
    CHANGED: "changed",
    REPLAYED: "computed anew",
    READS: "reads changed rows",
    REMOVED: "leaves",
}
# By the word in the address: the range of time of a board, with its name.
_RANGES = {
    "1h": ("hour", timedelta(hours=1)),
    "24h": ("24 hours", timedelta(hours=24)),
    "7d": ("7 days", timedelta(days=7)),
    "30d": ("30 days", timedelta(days=30)),
}
# A board is there to be watched: queries may take up to a third of the time.
_REST = 2


def render_page(
    request: Request,
    name: str,
    state: State,
    now: datetime,
    *,
    status_code: int = 200,
    matters: tuple[OpenMatter, ...] | None = None,
    **values: Any,
) -> Response:
    """Renders the page template `name` with the given values, and returns the response.

    `matters` are the open matters, if the caller knows them.
    """
    desk = desk_of(request)
    supervised = desk.here.running is not None
    where = request.url.path

    html = page_html(
        name,
        log_lines=_shown_lines,
        place=place_of(request),
        now=now,
        counts=open_counts(request, state, matters),
        matters=matters,
        generation=state.generation,
        supervised=supervised,
        with_token=request.app.state.accounts.is_guarded,
        asker=asker(request),
        where=where,
        health=lambda build: _health_at(request, build, now),
        phase_health=phase_health,
        rollout_health=lambda each: rollout_health(each, serves=serves_now(state, each)),
        serving_health=serving_health,
        role_word=role_word,
        topic_health=topic_health,
        version_of=lambda build: state.versions.get(build, ""),
        **values,
    )
    # A page that follows what happens asks again the later, the longer the page takes to make.
    took = f"page;dur={1000 * (time.thread_time() - _begun.get()):.0f}"
    headers = {**HEADERS, "Server-Timing": took}
    return Response(html, status_code, headers=headers, media_type="text/html")


def open_counts(
    request: Request, state: State | None = None, matters: tuple[OpenMatter, ...] | None = None
) -> Mapping[str, tuple[int, bool]]:
    """Returns the numbers in the navigation: open rejects, and open matters.

    The result maps the address of a page to its number, and to True if the number is critical. If
    there is no recent status, the result is empty, so that no page waits for a broker only because
    of a number. `state` is the present state, and `matters` are the open matters, if they are known
    already.
    """
    desk, identity = desk_of(request), identity_in(request.scope)
    status = desk.seen_status()
    if status is None or identity is None or not may(identity, Act.LOOK):
        return {}
    state = desk.here.state() if state is None else state
    if matters is None:
        matters = _matters_of(request, state, status, datetime.now(UTC))
    return {
        "/alerts": (len(matters), any(each.is_critical for each in matters)),
        "/rejects": (sum(desk.open_rejects(status).values()), False),
    }


def _matters_of(
    request: Request, state: State, status: Status, now: datetime
) -> tuple[OpenMatter, ...]:
    supervised = desk_of(request).here.running is not None
    return open_matters(status, state, now, supervised=supervised)


def _tables_of(desk: SharedLooks, build: str) -> int | None:
    """Returns the number of tables and views of a build, or None if its records are damaged."""
    try:
        birth = desk.memory.birth(build)
    except KappaError:
        return None
    return sum(each.name != REJECTS for each in birth.tables) + len(birth.views)


@router.get("/")
@needs(Act.READ)
def show_overview(request: Request, search: str = "", sort: str = "") -> Response:
    """Shows each pipeline: its live build, newest record, rate and lag, and its candidate."""
    if not may(asker(request), Act.LOOK):
        # Whoever reads some tables begins with them.
        return Response(status_code=303, headers={**HEADERS, "Location": "/tables"})
    desk, now = desk_of(request), datetime.now(UTC)
    state, status = desk.here.state(), desk.status()
    trails = _histories_of(request, desk)
    found = pipeline_cards(
        *(status, state, lambda build: trails.points_of(build, now), now),
        desk.open_rejects(status),
        _arrivals_of(request, desk, status),
        supervised=desk.here.running is not None,
    )
    matters = _matters_of(request, state, status, now)
    stopped = [each.build for each in matters if each.kind in JOB_MATTERS]
    return render_page(
        request,
        "overview",
        state,
        now,
        cards=found,
        steps=()
        if found
        else first_steps(
            written_pipelines(desk.here.settings.project), is_up=desk.here.running is not None
        ),
        matters=matters,
        log_ends={build: _log_end_of(request, state, build) for build in stopped[:_STOPPED]},
        most_stopped=_STOPPED,
        superseded=superseded_failures(state, now),
        most_superseded=_SUPERSEDED,
        window=WINDOW.total_seconds(),
        pipelines=(listed := pipeline_list(found, search.strip(), sort)),
        tables={
            each.pipeline: _tables_of(desk, each.live.build)
            for each in listed.rows
            if listed.dense and each.live is not None
        },
        status=status,
        broker=desk.here.bootstrap_servers,
        changes_text=changes_text,
        sinks=sink_statuses(desk.here.store, now.timestamp()),
        undos=(undos := {each.pipeline: undo_offer(state, each.pipeline) for each in found}),
        deeds={
            name: (
                *(() if offer is None else offer.actions),
                *service_actions(state, name),
            )
            for name, offer in undos.items()
        },
    )


@router.get("/rollouts/{number}")
@needs(Act.LOOK)
def show_rollout(request: Request, number: int) -> Response:
    """Shows a rollout: its stages, lag, checks, differences and possible actions."""
    desk, now = desk_of(request), datetime.now(UTC)
    state, status = desk.here.state(), desk.status()
    wanted = _rollout_numbered(state, number)
    build = next((each for each in status.builds if each.build == wanted.build), None)
    records = JournalView(desk.here.store).records(after=wanted.id - 1)
    sends = _sends_of(desk, state, wanted)
    return render_page(
        request,
        "rollout",
        state,
        now,
        view=(view := rollout_view(state, wanted, build, status.end, records)),
        changes=_code_changes_of(desk, view.live_build, wanted.build),
        log_end=_log_end_of(request, state, wanted.build) if view.job_failed else None,
        sends=[each.text for each in sends],
        cannot_send=_failing_in(status, wanted, sends),
        changes_text=changes_text(view.differences, past=view.rollout.phase is Phase.SERVED),
        readers=_changed_readers(desk, view) if wanted.waits else (),
        with_parts=view.comparable
        and wanted.waits
        and bool(outlet_parts(desk.memory.birth(wanted.build))),
        soak_seconds=desk.here.settings.rollout.soak_seconds,
        kept=next(
            (
                each
                for each in status.builds
                if each.role == "idle" and each.pipeline == wanted.pipeline
            ),
            None,
        ),
    )


@router.get("/rollouts/{number}/sends")
@needs(Act.LOOK)
def show_sends(request: Request, number: int) -> Response:
    """Shows what the switch of a rollout sends, after a comparison of the rows that outlets send.

    Without the comparison, the numbers of an outlet with a condition are upper bounds.
    """
    desk, now = desk_of(request), datetime.now(UTC)
    state = desk.here.state()
    view = rollout_view(state, _rollout_numbered(state, number), None, None)
    underway = False
    if view.comparable and view.live_build is not None:
        # A comparison that fails is reported beside the samples of rows.
        with suppress(KappaError):
            underway = samples_of(desk, view.live_build, view.rollout.build) is None
    sends = _sends_of(desk, state, view.rollout)
    return render_page(
        request,
        "sends",
        state,
        now,
        rollout=view.rollout,
        sends=[each.text for each in sends],
        cannot_send=_failing_in(desk.status(), view.rollout, sends),
        underway=underway,
    )


def _changed_readers(desk: SharedLooks, view: RolloutView) -> tuple[tuple[str, str, str], ...]:
    """Returns (kind, name, address) of the views and boards that a rollout changes with tables."""
    before = {} if view.live_build is None else desk.memory.birth(view.live_build).views
    queries = desk.memory.birth(view.rollout.build).views
    views = changed_views(queries, before, view.differences, tables_named)
    moved = {each.table for each in view.differences if not each.equal}
    boards = boards_naming(desk.here.settings.project, frozenset(moved.union(views)), tables_named)
    tables = f"/tables/{quote(view.rollout.pipeline, safe='')}"
    return (
        *(("view", each, f"{tables}/{quote(each, safe='')}") for each in views),
        *(("board", each, f"/boards/{quote(each, safe='')}") for each in boards),
    )


def _sends_of(desk: SharedLooks, state: State, rollout: Rollout) -> tuple[OutgoingChanges, ...]:
    """Returns what the sinks and alerts of a rollout send at the switch.

    After the switch, upper bounds are left out.
    """
    store, most = desk.here.store, desk.here.settings.alerts.most
    sends = sends_at_switch(store, state, rollout, most=most, parts=counted_parts(store, rollout))
    is_past = rollout.phase is Phase.SERVED
    return tuple(each for each in sends if not (is_past and each.is_bound))


def _failing_in(
    status: Status, rollout: Rollout, sends: Iterable[OutgoingChanges]
) -> Mapping[str, FailingOutlet]:
    """Returns the outlets that cannot send now, by the text of what a promote would send."""
    failing = {(each.kind, each.name): each for each in status.failing if rollout.waits}
    return {
        each.text: failing[each.kind, each.name]
        for each in sends
        if (each.kind, each.name) in failing
    }


def _code_changes_of(
    desk: SharedLooks, before: str | None, after: str
) -> tuple[ChangedPart, ...] | None:
    """Returns the code that changed between two builds.

    Returns () if `before` is None, and None if the code of a build is not kept any more.
    """
    if before is None:
        return ()
    try:
        return desk.shared_look(
            f"code of {before} and {after}", lambda: code_changes(desk.here.store, before, after)
        )
    except KappaError:
        return None


@router.get("/rollouts/{number}/samples")
@needs(Act.LOOK)
def show_samples(request: Request, number: int, *, long: bool = False) -> Response:
    """Shows samples of the rows in which a rollout's build and the live build differ.

    With `long`, the page shows up to a hundred rows of each kind, instead of five.
    """
    desk, now = desk_of(request), datetime.now(UTC)
    state = desk.here.state()
    view = rollout_view(state, _rollout_numbered(state, number), None, None)
    found, trouble, underway = tuple[SampledTable, ...](), None, False
    if view.comparable and view.live_build is not None:
        try:
            compared = samples_of(desk, view.live_build, view.rollout.build, is_long=long)
            birth = desk.memory.birth(view.rollout.build)
            # An overlay has the tables of another build.
            tables = desk.memory.birth(birth.folded_by).tables
            keys = {each.name: each.keys for each in tables}
            found = () if compared is None else sampled_tables(compared, keys)
            underway = compared is None
        except KappaError as error:
            trouble = error
    return render_page(
        request,
        "samples",
        state,
        now,
        view=view,
        found=found,
        long=long,
        trouble=trouble,
        underway=underway,
    )


@router.get("/logs")
@needs(Act.INSPECT)
def show_logs(request: Request) -> Response:
    """Redirects to the page of the first log that exists.

    If Kappa was ever up, this is the supervisor's log.
    """
    here = desk_of(request).here
    name = next(iter(log_files(here.store, here.state())), OWN_LOGS[0])
    return Response(status_code=303, headers={**HEADERS, "Location": f"/logs/{quote(name)}"})


@router.get("/logs/{name}")
@needs(Act.INSPECT)
def show_log(request: Request, name: str) -> Response:
    """Shows a part of the log of a process of the platform, or of a build's job.

    The part is the end of the log, the lines before or after a byte offset, or the lines since a
    time. If the query parameter `search` is given, only lines that contain this text are shown. If
    `level` is given, only lines of at least this level are shown.
    """
    here, now = desk_of(request).here, datetime.now(UTC)
    state, path = here.state(), _log_path(request, name)
    query = request.query_params
    asked = {
        each: query.get(each, "") for each in ("level", "search", "at", "start", "before", "follow")
    }
    level = asked["level"]
    trouble: KappaError | None = None
    start, before = (
        int(asked[each]) if asked[each].isdecimal() and len(asked[each]) < _PLACE_DIGITS else None
        for each in ("start", "before")
    )
    if asked["at"].strip():
        try:
            start = place_at(path, parse_time(asked["at"])[0])
        except UsageError as error:
            trouble = error
    part = log_part(
        path,
        least=LogLevel(level) if level in {*LogLevel} else None,
        search=asked["search"],
        start=start,
        before=before,
        most_lines=_LINES,
        most_bytes=_LOG_BYTES,
    )
    is_end = start is None and before is None

    def address(**changes: str | int) -> str:
        """Returns the address of the log page, with `changes` to the query parameters."""
        wanted = {key: text for key, text in {**asked, **changes}.items() if text != ""}
        return f"/logs/{quote(name, safe='')}" + (f"?{urlencode(wanted)}" if wanted else "")

    return render_page(
        request,
        "log",
        state,
        now,
        shown=name,
        source=path.stem,
        own=[each for each in log_files(here.store, state) if each in OWN_LOGS],
        builds=build_logs(here.store, state),
        part=part,
        lines=_shown_lines(part.lines),
        total=sum(part.counts.values()),
        wrong=part.counts.get("error", 0),
        slow=part.counts.get("warning", 0),
        size=size(part.size),
        asked=asked,
        address=address,
        is_end=is_end,
        follows=is_end and asked["follow"] != "no",
        trouble=trouble,
    )


@router.get("/logs/{name}/file")
@needs(Act.INSPECT)
def download_log(request: Request, name: str) -> Response:
    """Returns the content that a log has at this moment, as a file."""
    path = _log_path(request, name)

    def blocks() -> Iterator[bytes]:
        with path.open("rb") as file:
            # What is written meanwhile is of the next download.
            left = os.fstat(file.fileno()).st_size
            while left > 0 and (block := file.read(min(left, _FILE_BLOCK))):
                left -= len(block)
                yield block

    ending = re.sub(r"[^A-Za-z0-9._-]", "_", path.name)
    headers = {**HEADERS, "Content-Disposition": f'attachment; filename="{ending}"'}
    return StreamingResponse(blocks(), headers=headers, media_type="text/plain; charset=utf-8")


def _log_path(request: Request, name: str) -> Path:
    here = desk_of(request).here
    try:
        return log_file(here.store, here.state(), name)
    except UsageError as error:
        raise HttpError(404, error.message, hint=error.hint) from None


def _shown_lines(lines: Iterable[tuple[str, str]]) -> list[tuple[str, str, str, str]]:
    """Returns log lines as the level, the time, the level's word and the text. Texts are cut."""
    return [(level, *log_columns(line[:_LINE_CHARACTERS])) for level, line in lines]


def _log_end_of(request: Request, state: State, build: str) -> LogEnd | None:
    """Returns the end of the log of a build's job.

    Returns None if the client may not read logs, or if there is no log on this host.
    """
    if not may(asker(request), Act.INSPECT):
        return None
    try:
        return log_end(log_file(desk_of(request).here.store, state, build))
    except (UsageError, OSError):
        return None


@router.get("/history")
@needs(Act.LOOK)
def show_history(
    request: Request, before: int | None = None, pipeline: str = "", kind: str = ""
) -> Response:
    """Shows the newest part of the timeline, or the part before journal record number `before`.

    With `pipeline`, the page shows only the history of that pipeline, and with `kind`, only the
    entries of that kind.
    """
    desk, now = desk_of(request), datetime.now(UTC)
    state = desk.here.state()
    kind = kind if kind in KINDS_OF_MOMENTS else ""
    moments = timeline_moments(
        state, before=before, most=_MOMENTS + 1, pipeline=pipeline, kind=kind
    )
    soak = desk.here.settings.rollout.soak_seconds
    return render_page(
        request,
        "history",
        state,
        now,
        moments=moments[:_MOMENTS],
        more=len(moments) > _MOMENTS,
        before=before,
        pipeline=pipeline,
        pipelines=sorted({*state.pipelines.values()}),
        kind=kind,
        kinds=KINDS_OF_MOMENTS,
        changes_text=changes_text,
        undos={each: undo_offer(state, each) for each in state.idle},
        kept={each: soak_end(state, each, soak) for each in state.idle},
    )


@router.get("/generations/{number}")
@needs(Act.LOOK)
def show_generation(request: Request, number: int) -> Response:
    """Shows a generation and the builds that served in that generation."""
    desk, now = desk_of(request), datetime.now(UTC)
    state, here = desk.here.state(), desk.here
    births = {build: read_birth(here.store, build) for build in serving_in(state, number).values()}
    found = generation_details(
        state,
        number,
        births,
        {build: code_of(here.store, birth) for build, birth in births.items()},
        {
            rollout: tuple(each.text for each in sends if not each.is_bound)
            for rollout, sends in sent_in(
                here.store, state, number, most=here.settings.alerts.most
            ).items()
        },
    )
    tables, trouble = tuple[ServedTable, ...](), None
    try:
        tables = desk.shared_look(
            f"tables of generation {number}",
            lambda: served_tables(
                here.store, when=AtGeneration(number), lease_seconds=here.lease_seconds
            ),
            generation=state.generation,
        )
    except KappaError as error:
        trouble = error
    return render_page(
        request,
        "generation",
        state,
        now,
        changes_text=changes_text,
        most_open=_OPEN_OFFSETS,
        shown=found,
        left=retired_text(found.served) if isinstance(found.served, PipelineRetired) else "",
        tables=tables,
        sample=next(
            (shlex.quote(f"from {typed_name(each, quoted(each.name))}") for each in tables),
            '"select …"',
        ),
        trouble=trouble,
        undos=(undos := undos_to(state, number)),
        deeds=[action for each in undos for action in each.actions],
        kept={
            each: soak_end(state, each, here.settings.rollout.soak_seconds) for each in state.idle
        },
    )


def _health_at(request: Request, build: BuildStatus, now: datetime) -> Health:
    """Returns the health of a build.

    The build's rate is computed only if the build lags behind the log.
    """
    desk = desk_of(request)
    points = _histories_of(request, desk).points_of(build.build, now) if build.lag else ()
    supervised = desk.here.running is not None
    return health_of(build, now, rate=rate_of(points, now), supervised=supervised)


def _rollout_numbered(state: State, number: int) -> Rollout:
    try:
        return rollout_of_number(state, number)
    except KappaError as error:
        raise HttpError(404, error.message, hint="the history lists those that there are") from None


def _histories_of(request: Request, desk: SharedLooks) -> BuildHistories:
    trails: BuildHistories = request.app.state.__dict__.setdefault(
        "trails", BuildHistories(desk.here.store, desk.memory)
    )
    return trails


@router.get("/tables")
@needs(Act.READ)
def show_tables(request: Request, search: str = "", sort: str = "") -> Response:
    """Shows all served tables and views, or those that match `search`.

    A table matches if its name, its pipeline's name or a column's name contains `search`. With
    `sort`, the page shows the tables of all pipelines in one list, in this order.
    """
    desk, now = desk_of(request), datetime.now(UTC)
    state, status = desk.here.state(), desk.status()
    live = {each.pipeline: each for each in status.builds if each.role == "live"}
    tables = _readable_tables(request, desk, state)
    wanted = search.strip().casefold()
    found = [
        each
        for each in tables
        if any(
            wanted in name.casefold()
            for name in (each.name, each.pipeline, *(column for column, _ in each.columns))
        )
    ]
    complete = {
        pipeline: each.fresh_at.timestamp()
        for pipeline, each in live.items()
        if each.fresh_at is not None
    }
    keys: Mapping[str, Callable[[ServedTable], Any]] = {
        "name": lambda each: each.name.casefold(),
        "rows": lambda each: -(each.rows or 0),
        "size": lambda each: -(each.bytes or 0),
        "complete": lambda each: -complete.get(each.pipeline, 0.0),
    }
    if sort in keys:
        found.sort(key=keys[sort])
    return render_page(
        request,
        "tables",
        state,
        now,
        tables=found,
        sort=sort if sort in keys else "",
        total=len(tables),
        search=search.strip(),
        live=live,
    )


@router.get("/tables/{pipeline}/{name}")
@needs(Act.READ, tables_in_path)
def show_table(request: Request, pipeline: str, name: str) -> Response:
    """Shows a table: its rows in sorted, filtered pages, and its columns and checks.

    The request's query parameters select the rows; replay/page/table_rows.py parses them.
    """
    desk, now = desk_of(request), datetime.now(UTC)
    state, status, here = desk.here.state(), desk.status(), desk.here
    readable = asker(request).tables
    found = (
        next(
            (
                each
                for each in desk.tables(state.generation, in_background=True)
                if (each.pipeline, each.name) == (pipeline, name)
            ),
            None,
        )
        if state.generation
        else None
    )
    if found is None:
        raise HttpError(
            404,
            f"pipeline {pipeline[:80]} serves no table {name[:80]}",
            hint="the tables are listed under /tables",
        )
    birth = read_birth(here.store, found.build)
    view = table_view(
        found,
        birth,
        sorted_leases(here.store, now.timestamp())[0],
        tables_named,
        whole=f"{quoted(schema_of(pipeline))}.{quoted(name)}",
        costs=read_view_costs(here.store, birth.folded_by),
        # Sources and queries name tables that a reader of some tables may not read.
        origins=_origins_in(desk, birth).get(name, {}) if readable.is_all else {},
    )
    view = replace(
        view,
        views=tuple(each for each in view.views if readable.has(each)),
        made_of=tuple(each for each in view.made_of if readable.has(each)),
        sql=view.sql if readable.is_all else "",
    )
    wanted = RowsRequest.of(request.query_params)
    rows, trouble = _rows_of(request, desk, state, view, wanted)
    live = next((each for each in status.builds if each.build == found.build), None)
    return render_page(
        request,
        "table",
        state,
        now,
        view=view,
        wanted=wanted,
        matches=tuple(Match),
        rows=rows,
        trouble=trouble,
        live=live,
        with_origins=readable.is_all,
        checks=table_checks(view, state),
        pending=pending_change(state, found),
        topics=birth.topic_ids,
        rejects=desk.open_rejects(status).get(pipeline, 0) if readable.is_all else 0,
    )


def _rows_of(
    request: Request, desk: SharedLooks, state: State, view: TableView, wanted: RowsRequest
) -> tuple[RowsPage | None, KappaError | None]:
    """Returns the requested rows of a table, or the error if the rows cannot be shown.

    The result is (rows, None) or (None, error).
    """
    table, client = view.table, client_of(request.scope)

    def look() -> RowsPage | TooMuch:
        try:
            return ask_rows(
                *(stand_of(request), wanted, typed_name(table, view.whole), view.whole),
                *(dict(table.columns), view.keys, table.rows, client),
            )
        except TooMuch as error:
            # A result, so that rows that take long are not asked for again at once.
            return error

    try:
        found = desk.shared_look(
            f"rows of {view.whole} in {table.build}: {wanted}",
            look,
            generation=state.generation,
            client=client,
        )
    except KappaError as error:
        return None, error
    return (None, found) if isinstance(found, TooMuch) else (found, None)


def _origins_in(desk: SharedLooks, birth: Birth) -> Mapping[str, Mapping[str, ColumnOrigin]]:
    """Returns the origins of a build's columns, by table and column.

    An origin names the topics' fields from which a column is computed. Returns an empty mapping if
    the origins cannot be determined at present.
    """
    with suppress(KappaError):
        return desk.shared_look(f"columns of {birth.build}", lambda: column_origins(birth))
    return {}


def _readable_tables(request: Request, desk: SharedLooks, state: State) -> tuple[ServedTable, ...]:
    """Lists the served tables and views that the client of a request may read."""
    readable = asker(request).tables
    found = desk.tables(state.generation, in_background=True) if state.generation else ()
    return tuple(each for each in found if readable.allows(each.pipeline, each.name))


async def _query_of(request: Request) -> str:
    """Returns the SQL in a request: from the form of a POST request, otherwise from the address."""
    if request.method == "POST":
        form = parse_qs((await request.body()).decode(errors="replace"), keep_blank_values=True)
        return form.get("sql", [""])[0]
    return request.query_params.get("sql", "")


AskedQuery = Annotated[str, Depends(_query_of)]


@router.api_route("/query", methods=["GET", "POST"])
@needs(Act.READ)
def show_query(request: Request, sql: AskedQuery) -> Response:
    """Shows an SQL input, and the answer if the address or the form contains a query."""
    desk, now = desk_of(request), datetime.now(UTC)
    state = desk.here.state()
    answer: PersonsAnswer | None = None
    trouble: KappaError | None = None
    # A page of another site may link to a query, and only a person here asks for the answer.
    foreign = request.headers.get("sec-fetch-site") == "cross-site"
    if sql.strip() and not foreign:
        try:
            answer = answer_person(stand_of(request), sql, client_of(request.scope), asker(request))
        except KappaError as error:
            trouble = error
    return render_page(
        request,
        "query",
        state,
        now,
        status_code=200 if trouble is None else problem_of(trouble).status,
        sql=sql,
        answer=answer,
        trouble=trouble,
        tables=(tables := _readable_tables(request, desk, state)),
        schema=queried_tables(tables),
        mended=None if trouble is None else mended_query(sql, trouble),
        marked=() if trouble is None else marked_query(sql, trouble),
        samples=() if sql.strip() else sample_queries(tables),
        address=f"/query?sql={quote(sql)}" if 0 < len(sql) <= LONGEST_IN_ADDRESS else "/query",
    )


@router.api_route("/query.csv", methods=["GET", "POST"])
@needs(Act.READ)
def download_query(request: Request, sql: AskedQuery) -> Response:
    """Answers a query as a CSV file."""
    if request.headers.get("sec-fetch-site") == "cross-site":
        raise HttpError(
            403,
            "a page of another site links to this file",
            hint="open the Query page, and ask for the file there",
        )
    content = csv_answer(stand_of(request), sql, client_of(request.scope), asker(request))
    headers = {**HEADERS, "Content-Disposition": 'attachment; filename="query.csv"'}
    return Response(content, headers=headers, media_type="text/csv; charset=utf-8")


@router.get("/alerts")
@needs(Act.LOOK)
def show_alerts(request: Request) -> Response:
    """Shows the notices, the alerts, the last messages sent to the page, and the dead letters."""
    desk, now = desk_of(request), datetime.now(UTC)
    here, state = desk.here, desk.here.state()
    found = alert_statuses(here.store)
    of_tables = sorted_alerts(each for each in found if each.name != KAPPA)
    return render_page(
        request,
        "alerts",
        state,
        now,
        found=of_tables,
        own=next((each for each in found if each.name == KAPPA), None),
        alert_health=alert_health,
        message_fields=message_fields,
        shown=shown_alerts(here.store, (each.name for each in found), _ALERTS),
        matters=(matters := _matters_of(request, state, desk.status(), now)),
        notices=notice_rows(shown_notices(here.store, _ALERTS), matters),
        most=_LETTERS,
        most_open=_OPEN_LETTERS,
    )


@router.get("/topics")
@needs(Act.LOOK)
def show_topics(request: Request, search: str = "", sort: str = "") -> Response:
    """Shows each topic of the broker with its rate and the builds that read the topic."""
    desk, now = desk_of(request), datetime.now(UTC)
    state, found, trouble = desk.here.state(), list[dict[str, Any]](), None
    known: Mapping[str, float | None] = {}
    try:
        found, known = desk.topics().row_objects(), topic_rates(desk, _topic_rates_of(request))
    except KappaError as error:
        trouble = error
    rates = {each["topic"]: known.get(each["topic"]) for each in found}
    status = desk.status()
    usage = {each["topic"]: topic_usage(each["topic"], status) for each in found}
    details: Mapping[str, TopicDetails] = {}
    used = [name for name, each in usage.items() if each.roles][:_DETAILED_TOPICS]
    with suppress(KappaError):
        details = desk.shared_look(
            f"details of {len(used)} topics in {sorted(state.wanted_builds())}",
            lambda: observe_details(
                *(desk.must_reach_broker(), used, desk.here.store),
                runs_broker=desk.here.settings.runs_broker,
            ),
        )
    # First those that are read: a broker may have many others.
    found.sort(key=lambda each: (not usage[each["topic"]].roles, each["topic"]))
    keys: Mapping[str, Callable[[dict[str, Any]], Any]] = {
        "name": lambda each: each["topic"].casefold(),
        "records": lambda each: -(each["records"] or 0),
        "newest": lambda each: -_newest_at(usage[each["topic"]], details.get(each["topic"])),
        "lag": lambda each: -max(usage[each["topic"]].lags.values(), default=-1),
    }
    if sort in keys:
        found.sort(key=keys[sort])
    return render_page(
        request,
        "topics",
        state,
        now,
        topics=found,
        sort=sort if sort in keys else "",
        rates=rates,
        usage=usage,
        details=details,
        sinks=_sinks_of(desk),
        search=search.strip(),
        trouble=trouble,
    )


def _newest_at(usage: TopicUsage, details: TopicDetails | None) -> float:
    """Returns the time of a topic's newest known record in seconds since 1970, or 0."""
    at = usage.folded_at if details is None else details.newest_at
    return 0.0 if at is None else at.timestamp()


def _sinks_of(desk: SharedLooks) -> Mapping[str, Sequence[str]]:
    """Returns the tables that the project's sinks send, by the topic of the sink."""
    found: dict[str, list[str]] = {}
    for each in sink_statuses(desk.here.store, time.time()):
        found.setdefault(each.known.topic, []).append(each.known.table)
    return found


@router.get("/graph")
@needs(Act.LOOK)
def show_graph(
    request: Request,
    pipeline: str = "",
    search: str = "",
    only: str = "",
    zoom: str = "",
    healthy: str = "",
) -> Response:
    """Shows which topics, tables, views and outlets feed each other, for all pipelines or for one.

    With `search`, the page shows only nodes with this text in their names, and the nodes beside
    them. With `only=trouble`, the page shows only nodes that are late, stopped or wrong. If there
    are many pipelines, one node replaces all healthy pipelines. With `healthy=each`, one node
    replaces the tables of each healthy pipeline. A query parameter `open` names a pipeline that is
    shown with its tables. If the project is too large for a picture, the page shows only topics,
    pipelines, sinks and boards.
    """
    desk, now = desk_of(request), datetime.now(UTC)
    state, status = desk.here.state(), desk.status()
    rates: Mapping[str, float | None] = {}
    with suppress(KappaError):
        rates = topic_rates(desk, _topic_rates_of(request))
    opened, only = request.query_params.getlist("open"), only if only == "trouble" else ""
    size_ = int(zoom) if zoom in map(str, _ZOOMS) else None
    asked = {
        "pipeline": pipeline,
        "search": search.strip(),
        "only": only,
        "zoom": size_ or "",
        "healthy": healthy if healthy == "each" else "",
    }

    def address(**changes: object) -> str:
        """Returns the address of the graph page, with `changes` to the query parameters."""
        wanted = {
            key: found for key, found in {**asked, "open": opened, **changes}.items() if found
        }
        return "/graph" + (f"?{urlencode(wanted, doseq=True)}" if wanted else "")

    whole, trouble = ProjectGraph((), ()), None
    try:
        project = desk.here.settings.project
        whole = observe_graph(
            *(desk.memory.birth, state, status, boards_in(project)),
            *(tables_named, rates, written_pipelines(project)),
        )
        shown = part_of_graph(whole, pipeline) if pipeline else whole
    except KappaError as error:
        shown, trouble = whole, error
    states = _states_in(request, desk, shown, status, rates)
    urgent = {name for name, found in states.items() if found.tone in URGENT}
    wanted = search.strip().casefold()
    if wanted:
        found = {each.id for each in shown.nodes if wanted in each.name.casefold()}
        shown = nodes_around(shown, found)
    if only:
        shown = nodes_around(shown, urgent & {each.id for each in shown.nodes})
    heads = [each for each in shown.nodes if each.kind == "pipeline"]
    is_folded = len(heads) > _OPEN_PIPELINES and not wanted and not only
    if is_folded:
        shown, states = with_folded_pipelines(
            shown, states, urgent, opened, each=bool(asked["healthy"])
        )
    shown = worst_first(shown, status.builds, states)
    is_outline = len(shown.nodes) > _NODES
    shown = outline_of_graph(shown) if is_outline else shown
    drawn = draw_graph(shown, states)

    def href(each: DrawnNode) -> str:
        """Returns the address to which a click on a node leads.

        If the node stands for all tables of a pipeline, the address leads to a graph that shows
        these tables. If the node stands for several pipelines, the graph shows each pipeline.
        """
        if each.node.id == JOINED:
            return address(healthy="each")
        if not each.node.is_folded:
            return each.href
        name = each.node.name
        return address(pipeline=name) if is_outline else address(open=[*opened, name])

    drawn = replace(drawn, nodes=tuple(replace(each, href=href(each)) for each in drawn.nodes))
    changes = {each.node.change for each in drawn.nodes}
    numbers = {each.node.rollout for each in drawn.nodes if each.node.change}
    words: dict[str, dict[str, None]] = {}
    for each in drawn.nodes:
        if each.state is not None:
            words.setdefault(each.state.tone, {})[each.state.word.lower()] = None
    return render_page(
        request,
        "graph",
        state,
        now,
        drawn=drawn,
        is_outline=is_outline,
        kinds=[kind for kind in KINDS if any(each.node.kind == kind for each in drawn.nodes)],
        undeployed=any(not each.node.is_deployed for each in drawn.nodes),
        touched=[each for each in _LEGEND if each in changes],
        legend=_LEGEND,
        tones={tone: ", ".join(found) for tone, found in words.items()},
        rollouts=[
            each
            for each in status.builds
            if each.rollout is not None and each.rollout.number in numbers
        ],
        asked=asked,
        address=address,
        opened=opened,
        zoom=size_,
        zooms=_ZOOMS,
        pipelines=[each.name for each in whole.nodes if each.kind == "pipeline"],
        is_empty=not whole.nodes,
        trouble=trouble,
    )


def _states_in(
    request: Request,
    desk: SharedLooks,
    graph: ProjectGraph,
    status: Status,
    rates: Mapping[str, float | None],
) -> Mapping[str, Health]:
    """Returns the states of a graph's nodes, by id. Nodes whose state is unknown are left out."""
    store, now, tables = desk.here.store, datetime.now(UTC), tuple[ServedTable, ...]()
    with suppress(KappaError):
        if status.generation:
            tables = desk.tables(status.generation, in_background=True)
    return graph_states(
        graph,
        {each.pipeline: each for each in status.builds if each.role == "live"},
        lambda build: _health_at(request, build, now),
        rates,
        sink_statuses(store, now.timestamp()),
        alert_statuses(store),
        {(each.pipeline, each.name): each.broken for each in tables if each.broken},
    )


@router.get("/topics/{name}")
@needs(Act.INSPECT)
def show_topic(request: Request, name: str) -> Response:
    """Shows a topic's records: the newest, those from a position on, or those with a text."""
    desk, now = desk_of(request), datetime.now(UTC)
    state, status = desk.here.state(), desk.status()
    trouble: KappaError | None = None
    query = request.query_params
    asked = {
        each: query.get(each, "").strip() if each in {"start", "before"} else query.get(each, "")
        for each in ("partition", *_SEARCHED)
    }
    partition = asked["partition"]
    number = int(partition) if partition.isdecimal() and len(partition) < _DIGITS else None
    try:
        view = topic_view(desk, name, RecordSearch(number, *(asked[each] for each in _SEARCHED)))
    except UsageError as error:
        view, trouble = topic_view(desk, name), error
    builds = sorted(
        (each for each in status.builds if name in each.topics),
        key=lambda each: (each.pipeline, each.role != "live", each.role),
    )
    lags = {each.build: _lags_in(view, each) for each in builds}

    def address(**changes: str) -> str:
        """Returns the address of the topic's page, with `changes` to the query parameters."""
        wanted = {key: text for key, text in {**asked, **changes}.items() if text}
        return f"/topics/{quote(name, safe='')}" + (f"?{urlencode(wanted)}" if wanted else "")

    return render_page(
        request,
        "topic",
        state,
        now,
        view=view,
        asked=asked,
        address=address,
        trouble=trouble,
        rate=topic_rates(desk, _topic_rates_of(request)).get(name),
        builds=builds,
        lags=lags,
        live=(live := [each for each in builds if each.role == "live"]),
        behind=[each for each in live if any(lags[each.build].values())],
        most=_SHOWN_PARTITIONS,
        sinks=_sinks_of(desk),
        declared=desk.topics().row_objects(),
    )


def _lags_in(view: TopicView, build: BuildStatus) -> Mapping[int, int]:
    """Returns the number of offsets that a build has not folded, by partition of the topic."""
    return {
        each.number: max(0, each.end - max(each.begin, build.offsets.at(view.name, each.number)))
        for each in view.partitions
    }


@router.get("/rejects")
@needs(Act.READ, rejects_asked)
def show_rejects(
    request: Request, pipeline: str = "", reason: str = "", build: str = "", at: str = ""
) -> Response:
    """Shows the newest rejects, or, with `at`, the reject of the record at that position.

    `pipeline`, `reason` and `build` select the rejects.
    """
    desk, now = desk_of(request), datetime.now(UTC)
    state, here = desk.here.state(), desk.here
    found, trouble = tuple[Reject, ...](), None
    if state.generation:
        try:
            place = parse_position(at) if at else None
            wanted = RejectFilter(pipeline or None, build or None, reason or None, place)
            found = desk.shared_look(
                f"rejects {wanted}",
                lambda: newest_rejects(
                    here.store, wanted, limit=_REJECTS, lease_seconds=here.lease_seconds
                ),
                generation=state.generation,
            )
        except KappaError as error:
            trouble = error
    readable = asker(request).tables
    counted = {
        key: count
        for key, count in (
            desk.counted_rejects(state.generation) if state.generation else {}
        ).items()
        if readable.allows(key[0], REJECTS)
    }
    asked = {"pipeline": pipeline, "reason": reason, "build": build, "at": at}
    return render_page(
        request,
        "rejects",
        state,
        now,
        found=found,
        trouble=trouble,
        counted=counted,
        asked=asked,
        as_text=as_text,
        cut_length=cut_length,
        # The first reject of which the page cuts a part.
        cut=next(
            (each.at for each in found if cut_length(each.value) or cut_length(each.key)), None
        ),
        most=_REJECTS,
        # A redriven record mends a reject of what serves.
        can_mend=lambda each: (
            is_mendable(each)
            and each.redriven_at is None
            and state.serving.get(each.pipeline) == each.build
        ),
    )


@router.get("/rejects/line")
@needs(Act.INSPECT)
def show_reject_line(request: Request, at: str = "") -> Response:
    """Returns a reject of a serving build as a line that a person can correct and redrive.

    The line has the form that `kappa rejects export` writes. `at` is the position of the rejected
    record in the log.
    """
    here = desk_of(request).here
    found = newest_rejects(
        here.store,
        RejectFilter(at=parse_position(at)),
        limit=1,
        lease_seconds=here.lease_seconds,
    )
    if not found:
        raise HttpError(
            404,
            f"{at[:80]} is not a reject of what serves",
            hint="reload the page: /rejects lists the rejects",
        )
    return Response(export_line(found[0]), headers=dict(HEADERS), media_type="text/plain")


def _topic_rates_of(request: Request) -> TopicRates:
    paces: TopicRates = request.app.state.__dict__.setdefault("paces", TopicRates())
    return paces


def _arrivals_of(request: Request, desk: SharedLooks, status: Status) -> Mapping[str, float | None]:
    """Returns the number of new offsets per second in the topics of each serving build."""
    paces: TopicRates = request.app.state.__dict__.setdefault("build_paces", TopicRates())
    ends = {
        each.build: sum(offset for _, _, offset in each.offsets.items()) + each.lag
        for each in status.builds
        if each.role == "live" and each.lag is not None
    }
    return desk.shared_look("arrivals", lambda: paces.update_rates(ends, time.monotonic()))


@router.get("/boards")
@needs(Act.READ)
def show_boards(request: Request) -> Response:
    """Shows all boards of the project, and the mistakes in the files of boards."""
    desk, now = desk_of(request), datetime.now(UTC)
    found, state = boards_in(desk.here.settings.project), desk.here.state()
    return render_page(
        request,
        "boards",
        state,
        now,
        sample=None if found else sample_board(_readable_tables(request, desk, state)),
        boards={name: each for name, each in found.items() if not isinstance(each, KappaError)},
        wrong={name: each for name, each in found.items() if isinstance(each, KappaError)},
    )


def _board_named(request: Request, name: str) -> Board | DeclarationError:
    found = boards_in(desk_of(request).here.settings.project).get(board_name(name))
    if found is None:
        raise HttpError(
            404,
            f"the project has no board {name[:80]}",
            hint="a board is a file boards/NAME.toml beside kappa.toml; /boards lists them",
        )
    return found


def _answer_of(
    request: Request, found: Board | DeclarationError, last: str = ""
) -> tuple[BoardAnswer | None, KappaError | None]:
    """Returns the answers of a board's queries, or the error if the board cannot be shown.

    The result is (answer, None) or (None, error). `last` is the period that the line charts cover
    (hour, day, week or month), or "". All clients with the same rights share the answers.
    """
    if isinstance(found, DeclarationError):
        return None, found
    desk, stand, client = desk_of(request), stand_of(request), client_of(request.scope)
    reader = asker(request)
    readable = reader.tables
    whose = "all" if readable.names is None else sorted(readable.names)
    since = datetime.now(UTC) - _RANGES[last][1] if last else None
    try:
        answer = desk.shared_look(
            f"board {found} of the last {last or 'rows'} "
            f"for {'all' if readable.is_all else reader.name} of {whose}",
            lambda: answer_board(
                desk.here.store,
                stand.sandbox,
                found,
                lease_seconds=stand.lease_seconds,
                client=client,
                reader=reader,
                since=since,
            ),
            generation=desk.here.state().generation,
            rest=_REST,
            client=client,
        )
    except KappaError as error:
        return None, error
    return answer, None


@router.get("/boards/{name}/state")
@needs(Act.READ)
def show_board_state(request: Request, name: str) -> Response:
    """Shows which charts of a board fail, and the latest time in the board's charts."""
    desk, now = desk_of(request), datetime.now(UTC)
    found = _board_named(request, name)
    answer, trouble = _answer_of(request, found)
    return render_page(
        request,
        "board_state",
        desk.here.state(),
        now,
        board=name,
        title=name if isinstance(found, DeclarationError) else found.title,
        answer=answer,
        trouble=trouble,
        failing=[] if answer is None else [each for each in answer.charts if each.trouble],
    )


@router.get("/boards/{name}")
@needs(Act.READ)
def show_board(request: Request, name: str, *, kiosk: bool = False, last: str = "") -> Response:
    """Shows a board with all its charts.

    With `kiosk`, the page contains only the board, in large letters for a wall screen. With `last`,
    line charts over time cover only the last hour, day, week or month.
    """
    desk, now = desk_of(request), datetime.now(UTC)
    state, here = desk.here.state(), desk.here
    found = _board_named(request, name)
    answer, trouble = _answer_of(request, found, last if last in _RANGES else "")
    return render_page(
        request,
        "board",
        state,
        now,
        title=name if isinstance(found, DeclarationError) else found.title,
        address=f"/boards/{quote(name)}",
        kiosk=kiosk,
        last=last if last in _RANGES else "",
        ranges={key: name for key, (name, _) in _RANGES.items()},
        answer=answer,
        trouble=trouble,
        behind=answer is not None and is_behind(here.store, answer),
        reads=json.dumps([] if answer is None else answer.reads),
    )
