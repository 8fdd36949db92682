"""Makes hits of web pages: `python hits_events.py | kappa produce page_hits -`."""

import argparse
import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

PAGES = ("/", "/docs", "/prices", "/blog")


def events(seed: int = 1, count: int = 200) -> list[dict[str, Any]]:
    """Draws `count` hits of a dozen visitors, in the order of their time."""
    draw = random.Random(seed)
    at = datetime(2026, 1, 31, 9, tzinfo=UTC)
    hits = []
    for _ in range(count):
        at += timedelta(seconds=draw.randrange(5, 240))
        hit = {
            "visitor": f"v{draw.randrange(12) + 1}",
            "page": draw.choice(PAGES),
            "at": at.isoformat(),
        }
        hits.append(hit)
    return hits


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--count", type=int, default=200)
    given = arguments.parse_args()
    for event in events(given.seed, given.count):
        print(json.dumps(event))
