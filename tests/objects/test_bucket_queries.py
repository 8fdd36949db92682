"""Laws of queries of strangers over tables on a disk and in a bucket alike."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from served import DELAYS, PLANES, ROWS_OF_DELAYS, ROWS_OF_PLANES, Platform

from serving.sandbox.question import Allowance, Question
from serving.sandbox.sandbox import Sandbox


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(Allowance(at_once=2)) as made:
        yield made


@pytest.fixture
def platform(any_store) -> Platform:
    made = Platform(any_store)
    made.serve(
        "flights",
        {DELAYS: ROWS_OF_DELAYS, PLANES: ROWS_OF_PLANES},
        {"busy": "select carrier from delays where flights > 3"},
    )
    return made


def rows(sandbox: Sandbox, platform: Platform, sql: str) -> list[list[object]]:
    with sandbox.ask(platform.store, Question(sql)).body as body:
        return [[*each.values()] for each in json.load(body)["rows"]]


def test_a_stranger_reads_what_is_served(sandbox, platform):
    assert rows(sandbox, platform, "from delays order by all") == [["UA", 3], ["ÅÄ", 4], [None, 5]]
    assert rows(sandbox, platform, "from flights.planes") == [["N1", 100]]
    assert rows(sandbox, platform, "from busy order by all") == [["ÅÄ"], [None]]
    assert rows(sandbox, platform, "from rejects") == []
    assert rows(sandbox, platform, "select 1 as n") == [[1]]
