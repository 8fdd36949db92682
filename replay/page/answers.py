"""The answers of all charts of a board, over one pinned snapshot."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from kappa.base.errors import KappaError
from kappa.declare.board import Board, Chart
from kappa.replay.page.drawn import MOST_ROWS, Drawn, drawn
from kappa.replay.page.reads import Read, tables_read
from kappa.serving.query.pin.catalog import pin
from kappa.serving.query.pin.snapshot import PinnedSnapshot, Snapshot
from kappa.serving.query.reader.client import Client
from kappa.serving.query.reader.reader import open_reader
from kappa.serving.query.sandbox.question import Question
from kappa.serving.query.sandbox.sandbox import Sandbox
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.store import Store

# Queries of one board at once. Others have the other places of the sandbox.
_AT_ONCE = 2
# A snapshot that was not kept until the end is taken anew.
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class ChartAnswer:
    """A chart with what it draws, or with its trouble; `note` if rows are left out."""

    chart: Chart
    drawn: Drawn | None
    note: str = ""
    trouble: KappaError | None = None


@dataclass(frozen=True, slots=True)
class BoardAnswer:
    """All charts, as of one snapshot: its generation, and its frontier of each pipeline read.

    `reads` are the stored tables that the queries read.
    """

    generation: int
    charts: tuple[ChartAnswer, ...]
    reads: tuple[Read, ...]
    frontiers: Mapping[str, Frontier]


def answer_board(
    store: Store,
    sandbox: Sandbox,
    board: Board,
    *,
    lease_seconds: float,
    client: Client | None = None,
) -> BoardAnswer:
    """Answers the queries of a board, as queries over HTTP are, all from one snapshot.

    A query that fails is the trouble of its chart. Raises Conflict if no snapshot was kept until
    the end, and ClientLeft if the `client` leaves before.
    """
    attempt = 0
    while True:
        attempt += 1
        with pin(store, lease_seconds=lease_seconds) as pinned:
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                charts = tuple(
                    pool.map(partial(_answer_chart, store, sandbox, pinned, client), board.charts)
                )
            if attempt == _ATTEMPTS:
                pinned.confirm()
            if pinned.holds():
                return _answered(pinned.snapshot, board, charts)


def is_behind(store: Store, answer: BoardAnswer) -> bool:
    """Returns True if readers see a newer frontier of a pipeline that the board reads."""
    newest = (
        (frontier, Frontiers(store, frontier.build).newest())
        for frontier in answer.frontiers.values()
    )
    return any(last is not None and last.number > seen.number for seen, last in newest)


def _answer_chart(
    store: Store, sandbox: Sandbox, pinned: PinnedSnapshot, client: Client | None, chart: Chart
) -> ChartAnswer:
    try:
        reply = sandbox.ask_pinned(
            store, pinned, Question(chart.sql, rows=MOST_ROWS), client=client
        )
        with reply.body as body:
            shown, note = drawn(chart.kind, json.loads(body.read()))
    except KappaError as error:
        return ChartAnswer(chart, None, trouble=error)
    return ChartAnswer(chart, shown, note)


def _answered(snapshot: Snapshot, board: Board, charts: tuple[ChartAnswer, ...]) -> BoardAnswer:
    births = {pipeline: snapshot.births[build] for pipeline, build in snapshot.serving.items()}
    with open_reader(None, served=True) as reader:
        reads = sorted(
            {
                read
                for chart in board.charts
                for read in tables_read(chart.sql, births, reader.tables_named)
            }
        )
    return BoardAnswer(
        snapshot.generation,
        charts,
        tuple(reads),
        {
            pipeline: snapshot.frontiers[snapshot.serving[pipeline]]
            for pipeline in sorted({pipeline for pipeline, _ in reads})
        },
    )
