"""The edit of the story: what turns version 1 of `pipelines/flights.py` into version 2. Pure.

It is applied to a copy of the project, never to the tree: a small change, as a person would make it in an editor.
"""

from __future__ import annotations

import difflib

from kappa.base.errors import KappaError

# Each pair is a piece of version 1, which stands there once, and what takes its place.
EDITS = (
    (
        '                "on_time": sum_("on_time"),\n',
        '                "on_time": sum_("on_time"),\n                "cancelled": sum_("cancelled"),\n',
    ),
    (
        'checks=["flights > 0", "departed <= flights", "on_time between 0 and flights"],',
        'checks=["flights > 0", "departed + cancelled = flights", "on_time between 0 and departed"],',
    ),
    (
        '    on_time = F.coalesce("dep_delay", F.lit(0)) < LATE_MINUTES\n',
        '    cancelled = F.isnull("dep_time")\n    on_time = ~cancelled & (F.col("dep_delay") < LATE_MINUTES)\n',
    ),
    (
        '.withColumn("on_time", on_time.cast("int")),',
        '.withColumn("on_time", on_time.cast("int")).withColumn("cancelled", cancelled.cast("int")),',
    ),
)


def edited(version_1: str) -> str:
    """Version 2 of the file. Raises KappaError where the text is not the version 1 that the story knows."""
    text = version_1
    for old, new in EDITS:
        if text.count(old) != 1:
            raise KappaError(
                f"pipelines/flights.py is not the file the demo knows: {old.strip()!r} stands there {text.count(old)} times",
                hint="undo your edits: git checkout pipelines/flights.py",
            )
        text = text.replace(old, new)
    return text


def difference(before: str, after: str, name: str) -> str:
    """The edit as `diff -u` shows it, without its two header lines."""
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), name, name, lineterm="", n=0
    )
    return "\n".join(line for line in lines if not line.startswith(("---", "+++")))
