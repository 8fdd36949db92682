"""Fixtures of the tests of maintained views."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, bool]]:
    """Counts the tries to compute a view from the slice alone, by name and success."""
    from kappa.engine.views.view_maintenance import MaintainedViews

    counts = Counter[tuple[str, bool]]()
    compute = MaintainedViews._of_slice

    def counted(views: MaintainedViews, writer: Any, *rest: Any) -> Any:
        found = compute(views, writer, *rest)
        counts[writer.birth.name, found is not None] += 1
        return found

    monkeypatch.setattr(MaintainedViews, "_of_slice", counted)
    return counts
