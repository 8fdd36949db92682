"""Computes what the pages of a new project show: the commands to type, and a sample of a board."""

from __future__ import annotations

import json
from collections.abc import Iterable

from kappa.code.new_project import next_commands, template_files
from kappa.replay.page.queries import sample_queries
from kappa.serving.query.tables import ServedTable

_TEMPLATE = "page-hits"
# What a command does, by its subcommand.
_STEPS = {
    "init": "Make a project with a pipeline, sample events, tests and a board",
    "up": "Start the broker, the jobs and this page",
    "topics": "Make the topics that the pipelines read",
    "produce": "Send the sample events",
    "deploy": "Replay the topics, verify the tables, and let the tables serve",
    "query": "Read a table, here or on the Query page",
}


def first_steps() -> tuple[tuple[str, str], ...]:
    """Returns the steps to the first answer: what a step does, and the command to type."""
    commands = ("kappa init shop && cd shop", *next_commands(_TEMPLATE))
    return tuple((_STEPS[command.split()[1]], command) for command in commands)


def sample_board(tables: Iterable[ServedTable]) -> str:
    """Returns the content of a board's file, with queries of one of the `tables`.

    Without a table, the result is the board of a template.
    """
    samples = sample_queries(tables)
    if not samples:
        return template_files(_TEMPLATE)["boards/pages.toml"].decode()
    charts = (
        f"\n[[chart]]\ntitle = {json.dumps(each.title)}\nkind = {json.dumps(each.kind)}\n"
        f"sql = '''\n{each.sql}\n'''\n"
        for each in samples
    )
    return f'title = "First board"\n{"".join(charts)}'
