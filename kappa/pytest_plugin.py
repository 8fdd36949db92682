"""A pytest plugin: tests can import the project's pipelines, and share a warm Spark session.

If Kappa is installed, pytest finds the plugin without configuration. A file of tests requests Spark
with this line:

    pytestmark = pytest.mark.usefixtures("warm_spark")
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Lets tests import from the project that contains them: `from pipelines.web import web`."""
    root = config.rootpath
    for folder in (root, *root.parents):
        if (folder / "kappa.toml").is_file():
            # The folder is last in the path, so that no file of the project is imported in place of
            # a library with the same name.
            sys.path.append(str(folder))
            return


@pytest.fixture(scope="session")
def warm_spark(request: pytest.FixtureRequest) -> Iterator[None]:
    """Keeps a Spark session for `tables_of` and the laws until the last test has ended."""
    # A run without tests on Spark does not wait for this import.
    from kappa.engine.children.rehearsal import local_session  # noqa: PLC0415

    with local_session(request.config.rootpath):
        yield
