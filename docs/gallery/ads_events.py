"""Makes events of ads: `ads_events.py impressions | kappa produce impressions -`."""

import argparse
import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any


def events(seed: int = 1, count: int = 200) -> dict[str, list[dict[str, Any]]]:
    """Draws `count` impressions, and clicks on some: in time, too late, twice, or on none."""
    draw = random.Random(seed)
    at = datetime(2026, 1, 31, 9, tzinfo=UTC)
    impressions, clicks = list[dict[str, Any]](), list[dict[str, Any]]()
    for number in range(1, count + 1):
        at += timedelta(seconds=draw.randrange(60))
        campaign = draw.choice(["spring", "summer", "winter"])
        impressions.append({"id": f"i{number}", "campaign": campaign, "at": at.isoformat()})
        for _ in range(draw.choice([0, 0, 0, 0, 0, 1, 1, 2])):
            click = {
                "id": f"c{len(clicks) + 1}",
                "impression": draw.choice([f"i{number}"] * 19 + ["i0"]),
                "at": (at + timedelta(seconds=draw.randrange(1, 800))).isoformat(),
            }
            clicks.append(click)
    return {"impressions": impressions, "ad_clicks": clicks}


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("what", choices=("impressions", "ad_clicks"))
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--count", type=int, default=200)
    given = arguments.parse_args()
    for event in events(given.seed, given.count)[given.what]:
        print(json.dumps(event))
