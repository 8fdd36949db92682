"""Makes searches and offers: `python searches_events.py offers | kappa produce offers -`."""

import argparse
import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

SEARCHES = (
    ("s1", "ada", "lamp", "home", 30),
    ("s2", "bob", "bike", None, None),
    ("s3", "ada", "desk", "office", 150),
    ("s4", "cleo", "bike", "sport", 200),
)
THINGS = {
    "lamp": ("home", 5, 60),
    "desk": ("office", 40, 400),
    "bike": ("sport", 50, 900),
    "bike bell": ("home", 3, 12),
    "chair": ("home", 10, 90),
}
KINDS = ("old", "new", "red", "small", "used")


def events(seed: int = 1, count: int = 30) -> dict[str, list[dict[str, Any]]]:
    """Draws `count` offers beside the searches, and one offer more, which comes later."""
    draw = random.Random(seed)
    searches = [
        {"id": id_, "person": person, "word": word, "category": category, "most": most}
        for id_, person, word, category, most in SEARCHES
    ]
    at = datetime(2026, 1, 31, 8, tzinfo=UTC)
    offers = []
    for number in range(1, count + 1):
        at += timedelta(seconds=draw.randrange(1, 600))
        thing = draw.choice([*THINGS])
        category, least, most = THINGS[thing]
        offer = {
            "id": f"o{number}",
            "title": f"{draw.choice(KINDS)} {thing}".capitalize(),
            "category": category,
            "price": draw.randrange(least, most),
            "at": at.isoformat(),
        }
        offers.append(offer)
    later = {
        "id": "o-new",
        "title": "Folding bike",
        "category": "sport",
        "price": 120,
        "at": (at + timedelta(minutes=1)).isoformat(),
    }
    return {"searches": searches, "offers": offers, "later": [later]}


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("what", choices=sorted(events(count=0)))
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--count", type=int, default=30)
    given = arguments.parse_args()
    for event in events(given.seed, given.count)[given.what]:
        print(json.dumps(event))
