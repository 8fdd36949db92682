"""A plugin of pytest: tests find a project's pipelines, and share one Spark that is warm.

pytest finds it by itself where Kappa is installed. A file of tests asks for Spark in one line:

    pytestmark = pytest.mark.usefixtures("warm_spark")
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Lets tests import from the project that they are in, as `from pipelines.web import web`."""
    root = config.rootpath
    for folder in (root, *root.parents):
        if (folder / "kappa.toml").is_file():
            # Last: a file of the project's must not be imported instead of a library of that name.
            sys.path.append(str(folder))
            return


@pytest.fixture(scope="session")
def warm_spark() -> Iterator[None]:
    """Keeps one Spark for `tables_of` and the laws until the last test has ended."""
    # A run without such tests does not wait for the import.
    from kappa.engine.children.rehearsal import local_session  # noqa: PLC0415

    with local_session():
        yield
