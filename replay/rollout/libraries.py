"""Lists the packages of this environment, and compares them with those that a build recorded.

A build's birth certificate records the packages that were installed when the build was created. A
plan names the packages that have changed since then. A changed library is reported, but does not
change a version by itself: only a replay would show whether the library changes rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import metadata

# Packages of builds and tests, which compute no row.
_TOOLS = frozenset(
    {
        *("coverage", "hypothesis", "iniconfig", "mypy", "mypy-extensions", "packaging", "pip"),
        *("pluggy", "pygments", "pytest", "ruff", "setuptools", "uv", "wheel"),
    }
)


@cache
def installed_libraries() -> Mapping[str, str]:
    """Returns the version of each package in this environment, by the package's name."""
    found = ((each.metadata["Name"], each.version) for each in metadata.distributions())
    return {name: version for name, version in sorted(found) if name}


def changed_libraries(born: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the packages that changed since a build was created, such as `duckdb 1.5.4 to 1.5.5`.

    `born` and `now` map packages to versions. A package that was not installed when the build was
    created is omitted, because the build's rows were computed without it. Build and test tools are
    omitted too. Returns () if `born` or `now` is empty.
    """
    if not born or not now:
        return ()
    return tuple(
        f"{name} {version} to {now.get(name, '(none)')}"
        for name, version in sorted(born.items())
        if version != now.get(name) and name.lower().replace("_", "-") not in _TOOLS
    )
