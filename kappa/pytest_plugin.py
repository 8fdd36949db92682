"""A plugin of pytest: Spark boots once for all tests of pipelines.

pytest finds it by itself where Kappa is installed. A file of tests asks for it in one line:

    pytestmark = pytest.mark.usefixtures("warm_spark")
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def warm_spark() -> Iterator[None]:
    """Keeps one Spark for `tables_of` and the laws until the last test has ended."""
    # A run without such tests does not wait for the import.
    from kappa.engine.children.rehearsal import local_session  # noqa: PLC0415

    with local_session():
        yield
