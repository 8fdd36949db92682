"""The packages of this environment: births record their versions, and a plan says which are others now.

A changed library is told and changes no version by itself (law 14): whether it changes rows, only a replay would show.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import metadata


@cache
def installed_libraries() -> Mapping[str, str]:
    """The version of every package of this environment, as births record them."""
    found = ((each.metadata["Name"], each.version) for each in metadata.distributions())
    return {name: version for name, version in sorted(found) if name}


def changed_libraries(born: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    """The packages that are others than at a birth: `duckdb 1.5.4 to 1.5.5`; none where one of both is not known."""
    if not born or not now:
        return ()
    return tuple(
        f"{name} {born.get(name, '(none)')} to {now.get(name, '(none)')}"
        for name in sorted({*born, *now})
        if born.get(name) != now.get(name)
    )
