"""A pytest plugin: tests can import the project's pipelines, and share one Spark session.

If Kappa is installed, pytest finds the plugin without configuration. A test file requests the Spark
session with this line:

    pytestmark = pytest.mark.usefixtures("warm_spark")
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Adds the project's folder to `sys.path`, so that tests can import `pipelines.web`.

    The project's folder is pytest's root folder if it contains `kappa.toml`, otherwise the nearest
    folder above it that contains `kappa.toml`. If there is no such folder, does nothing.
    """
    root = config.rootpath
    for folder in (root, *root.parents):
        if (folder / "kappa.toml").is_file():
            # The folder is last in the path, so that no file of the project is imported in place of
            # a library with the same name.
            sys.path.append(str(folder))
            return


@pytest.fixture(scope="session")
def warm_spark(request: pytest.FixtureRequest) -> Iterator[None]:
    """Keeps one Spark session open until the last test has ended.

    All functions in kappa/testing.py then use this session.
    """
    # A run without tests on Spark does not wait for this import.
    from kappa.engine.children.rehearsal import local_session  # noqa: PLC0415

    with local_session(request.config.rootpath):
        yield
