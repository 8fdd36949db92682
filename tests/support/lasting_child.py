"""A child process that keeps a record in a temporary file, reports its pid, and never exits."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path


def main() -> None:
    task = json.loads(sys.stdin.readline())
    request = json.loads((Path(task["arguments"][0]) / "request.json").read_text(encoding="utf-8"))
    own = Path(tempfile.mkdtemp(prefix="kappa-law-"))
    (own / "rows.json").write_text(json.dumps(request["records"]), encoding="utf-8")
    (own / "ready.part").write_text(json.dumps({"pid": os.getpid()}), encoding="utf-8")
    (own / "ready.part").rename(own / "ready.json")
    time.sleep(600)


if __name__ == "__main__":
    main()
