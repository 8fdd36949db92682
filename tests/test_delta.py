"""Looking at a pinned version while the job keeps its table in shape (I4, law 11).

That log files go between a reader's list of them and its reading them cannot be made to happen at will, so the look is
what is played here; the story of the demo met the real one.
"""

from __future__ import annotations

from itertools import count

import pytest

from kappa.delta import _looked
from kappa.errors import Damaged


def test_a_look_that_the_log_moved_under_is_taken_again() -> None:
    looks = count()

    def look() -> str:
        if next(looks) == 0:
            raise Damaged("the checkpoint that was listed is gone")
        return "files"

    assert _looked(look) == "files"


def test_a_version_that_is_really_gone_is_said() -> None:
    def look() -> str:
        raise Damaged("version 3 cannot be opened")

    with pytest.raises(Damaged, match="version 3"):
        _looked(look)
