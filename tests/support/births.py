"""Birth certificates, with defaults for all but the point."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from kappa.state.build import Birth


def make_birth(build: str, pipeline: str = "flights", **given: Any) -> Birth:
    """Returns a birth certificate of no topic and no table, with the given fields in place."""
    empty = Birth(build, pipeline, "v", {}, 1, {}, pipeline, (), (), {}, {}, {}, "then", "ada@test")
    return structs.replace(empty, **given)
