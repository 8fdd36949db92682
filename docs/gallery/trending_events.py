"""Makes posts of people: `python trending_events.py | kappa produce posts -`."""

import argparse
import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

PEOPLE = ("ada", "bob", "cleo", "dan")
WORDS = ("rain", "coffee", "train", "song", "game", "bridge", "market", "snow", "bread", "cat")


def events(seed: int = 1, count: int = 200) -> list[dict[str, Any]]:
    """Draws `count` posts over some hours; each hour has a word that people like most."""
    draw = random.Random(seed)
    at = datetime(2026, 1, 31, 8, tzinfo=UTC)
    posts = []
    for number in range(1, count + 1):
        at += timedelta(seconds=draw.randrange(10, 180))
        liked = WORDS[at.hour % len(WORDS)]
        one, other = (draw.choice([*WORDS, liked, liked, liked]) for _ in range(2))
        post = {
            "id": f"p{number}",
            "author": draw.choice(PEOPLE),
            "text": f"The {one} is on, and a {other}!",
            "at": at.isoformat(),
        }
        posts.append(post)
    return posts


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--count", type=int, default=200)
    given = arguments.parse_args()
    for event in events(given.seed, given.count):
        print(json.dumps(event))
