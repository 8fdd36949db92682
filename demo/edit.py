"""Changes `pipelines/flights.py` from version 1 to version 2, as a user would edit it. Pure.

The change is applied to a copy of the project, never to the repository.
"""

from __future__ import annotations

import difflib

from kappa.base.errors import KappaError

PIPELINE = "flights"
# Each pair is a piece of version 1, which occurs once, and its replacement.
EDITS = (
    (
        '                "on_time": sum_("on_time"),\n',
        (
            '                "on_time": sum_("on_time"),\n'
            '                "cancelled": sum_("cancelled"),\n'
        ),
    ),
    (
        'checks=["flights > 0", "departed <= flights", "on_time between 0 and flights"],',
        (
            'checks=["flights > 0", "departed + cancelled = flights", '
            '"on_time between 0 and departed"],'
        ),
    ),
    (
        '    on_time = F.coalesce("dep_delay", F.lit(0)) < LATE_MINUTES\n',
        (
            '    cancelled = F.isnull("dep_time")\n'
            '    on_time = ~cancelled & (F.col("dep_delay") < LATE_MINUTES)\n'
        ),
    ),
    (
        '.withColumn("on_time", on_time.cast("int")),',
        (
            '.withColumn("on_time", on_time.cast("int"))'
            '.withColumn("cancelled", cancelled.cast("int")),'
        ),
    ),
)


def edited(version_1: str) -> str:
    """Returns version 2 of `pipelines/flights.py`.

    Raises KappaError if `version_1` is not the known version 1.
    """
    text = version_1
    for old, new in EDITS:
        if text.count(old) != 1:
            raise KappaError(
                "pipelines/flights.py is not the file the demo knows: "
                f"{old.strip()!r} occurs {text.count(old)} times",
                hint="undo your edits: git checkout pipelines/flights.py",
            )
        text = text.replace(old, new)
    return text


def difference(before: str, after: str, name: str) -> str:
    """Returns the difference of two texts in the form of `diff -u`, without the header lines."""
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), name, name, lineterm="", n=0
    )
    return "\n".join(line for line in lines if not line.startswith(("---", "+++")))
