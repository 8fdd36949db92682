"""A program for a spare. It leaves traces in its process, and reports traces that it finds."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path


def main(arguments: list[str]) -> int:
    """Writes its findings to a file, or answers the request in a folder; `wait` makes it stay."""
    place, *more = arguments
    answer = f"{place}/answer.json" if Path(place).is_dir() else place
    found = {
        "pid": os.getpid(),
        "folder": str(Path.cwd()),
        "mood": os.environ.get("MOOD"),
        "input": sys.stdin.read(),
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "title": Path("/proc/self/cmdline").read_bytes().rstrip(b"\0").decode(),
    }
    if "spark" in more:
        found |= _traces()
    print(f"it finds {found['pid']}", file=sys.stderr, flush=True)
    part = Path(f"{answer}.part")
    given = {"web": found} if Path(place).is_dir() else found
    part.write_text(json.dumps(given), encoding="utf-8")
    part.rename(answer)
    if "wait" in more:
        time.sleep(600)
    return 7 if "fails" in more else 0


def _traces() -> dict[str, object]:
    from kappa.engine.spark.session import booted_ahead

    spark = booted_ahead().session()
    found = {
        "views": [table.name for table in spark.catalog.listTables()],
        "ansi": spark.conf.get("spark.sql.ansi.enabled"),
        "utc": spark.conf.get("spark.sql.session.timeZone"),
        "functions": spark.catalog.functionExists("mine"),
    }
    spark.range(1).createOrReplaceTempView("left_behind")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    spark.udf.register("mine", lambda value: value)
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
