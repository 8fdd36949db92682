"""Birth certificates for tests. All fields are empty except the given ones."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from kappa.state.build import Birth, TopicBirth
from kappa.state.table import TableBirth


def make_birth(
    build: str,
    tables: tuple[TableBirth, ...] = (),
    *,
    topics: tuple[TopicBirth, ...] = (),
    pipeline: str = "p",
    version: str = "v",
    **fields: Any,
) -> Birth:
    """Returns a birth certificate with these `fields` of `Birth`."""
    first = (build, pipeline, version, {}, 1, {}, "", topics, tables)
    made = Birth(*first, {}, {}, {}, "2026-01-31T12:00:00Z", "me")
    return replace(made, **fields)
