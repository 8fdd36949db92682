"""Laws of completion: names fit their position, and are quoted as SQL requires."""

from __future__ import annotations

import pytest

from kappa.commands.prompt.completion import KnownNames, suggest_names
from kappa.serving.query.tables import ServedTable

DELAYS = ServedTable(
    "delays", "table", "flights", "flights-1", None, (("carrier", "VARCHAR"), ("at", "TIMESTAMP"))
)
PLANES = ServedTable(
    "planes", "view", "Air", "air-1", None, (("Seats", "INTEGER"), ("x\x1b[2J", "INTEGER"))
)
KNOWN = KnownNames(
    (DELAYS, PLANES),
    ("count", "carry"),
    ("select", "from"),
    {"\\d": ("delays", "planes"), "\\dt": (), "\\o": ("csv ", "json ")},
)


@pytest.mark.parametrize(
    ("before", "after", "texts"),
    [
        ("sel", "", ["select"]),
        ("select * from ", "", ["delays", "planes", "flights.", '"Air".']),
        ("select * from de", "", ["delays"]),
        ("select * from delays, pl", "", ["planes"]),
        ("from delays join ", "", ["delays", "planes", "flights.", '"Air".']),
        ("select ca", " from delays", ["carrier", "carry("]),
        ("select ", " from delays", ["carrier", "at"]),
        ("select ", "", []),
        ("select ca", "", ["carrier", "carry("]),
        ("select CA", " FROM Delays", ["carrier", "carry("]),
        ("select d.", " from delays as d", ["carrier", "at"]),
        ("select d.", " from delays d, planes", ["carrier", "at"]),
        ("select p.s", ' from "Air".planes p', ['"Seats"']),
        ('select "S', " from planes", ['"Seats"']),
        ("select * from flights.", "", ["delays"]),
        ("select 'de", " from delays", []),
        ("select 1 -- de", "", []),
        ("select 'it''s', ca", " from delays", ["carrier", "carry("]),
        ("\\", "", ["\\d", "\\dt", "\\o"]),
        ("\\d ", "", ["delays", "planes"]),
        ("\\d p", "", ["planes"]),
        ("\\o j", "", ["json "]),
        ("\\nothing x", "", []),
    ],
)
def test_names_fit_at_the_cursor(before: str, after: str, texts: list[str]) -> None:
    assert [each.text for each in suggest_names(before, before + after, KNOWN)] == texts


def test_a_suggestion_replaces_what_is_typed() -> None:
    (found,) = suggest_names("select * from flights.de", "select * from flights.de", KNOWN)

    assert (found.text, found.length, found.kind) == ("delays", 2, "table")


def test_a_column_that_steers_is_not_offered() -> None:
    found = suggest_names("select ", "select  from planes", KNOWN)

    assert [each.text for each in found] == ['"Seats"']
