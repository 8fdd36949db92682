"""Computes what the pages of a new project show: the commands to type, and a sample of a board."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kappa.base.sql import quoted
from kappa.code.names import WrittenPipeline
from kappa.code.new_project import template_files
from kappa.replay.page.queries import sample_queries
from kappa.serving.query.tables import ServedTable

_TEMPLATE = "page-hits"
_PIPELINE, _EVENTS, _BOARD = "pipelines/web.py", "events/visits.ndjson", "boards/pages.toml"


@dataclass(frozen=True, slots=True)
class FirstStep:
    """A step to the first answer: what the step does, and the text to copy.

    The text is a command, or the content of a new file if `file` is the path of this file.
    """

    text: str
    copied: str
    file: str = ""


def first_steps(written: Sequence[WrittenPipeline], *, is_up: bool) -> tuple[FirstStep, ...]:
    """Returns the steps that are left to the first answer of a project without builds.

    `written` are the pipelines that the project's files declare. If there are none, the first step
    is to write the pipeline of a template. `is_up` is True if a supervisor is running.
    """
    return tuple(_steps(written, is_up=is_up))


def _steps(written: Sequence[WrittenPipeline], *, is_up: bool) -> Iterator[FirstStep]:
    if not written:
        content = template_files(_TEMPLATE)[_PIPELINE].decode()
        yield FirstStep("Write a pipeline, for example this file:", content, _PIPELINE)
    if not is_up:
        yield FirstStep("Start the broker and the jobs", "kappa up -d")
    yield FirstStep("Make the topics that the pipelines read", "kappa topics create")
    if written:
        topic = next((name for each in written for name in each.topics), "TOPIC")
        send = f"kappa produce {shlex.quote(topic)} FILE"
        yield FirstStep("Send events: FILE has a JSON object in each line", send)
    else:
        event, *_ = template_files(_TEMPLATE)[_EVENTS].decode().splitlines()
        send = f"echo {shlex.quote(event)} | kappa produce visits - --from jsonl"
        yield FirstStep("Send an event", send)
    yield FirstStep(
        "Replay the topics, verify the tables, and let the tables serve; --yes skips the approval",
        "kappa deploy --yes",
    )
    tables = [name for each in written for _, name in each.relations]
    table = "page_hits" if not written else tables[0] if tables else "TABLE"
    name = table if table.isidentifier() else quoted(table)
    yield FirstStep(
        "Read a table, in the shell or on the Query page",
        f"kappa query {shlex.quote(f'from {name}')}",
    )


@dataclass(frozen=True, slots=True)
class SampleBoard:
    """A board to copy: the path of its file in the project, and the file's content.

    `is_own` is True if the queries read a table of the project.
    """

    path: str
    content: str
    is_own: bool


def sample_board(tables: Iterable[ServedTable]) -> SampleBoard:
    """Returns a board with queries of one of the `tables`.

    Without a table, the result is the board of a template.
    """
    samples = sample_queries(tables)
    if not samples:
        return SampleBoard(_BOARD, template_files(_TEMPLATE)[_BOARD].decode(), is_own=False)
    # Two charts show the form.
    charts = (
        f"\n[[chart]]\ntitle = {json.dumps(each.title)}\nkind = {json.dumps(each.kind)}\n"
        f"sql = '''\n{each.sql}\n'''\n"
        for each in samples[-2:]
    )
    content = f'title = "First board"\n{"".join(charts)}'
    return SampleBoard("boards/first.toml", content, is_own=True)
