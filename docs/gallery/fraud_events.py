"""Makes events of a bank: `fraud_events.py logins | kappa produce logins -`."""

import argparse
import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any


def events(seed: int = 1, count: int = 200) -> dict[str, list[dict[str, Any]]]:
    """Draws `count` logins of ten accounts, of which some are broken into, and transfers."""
    draw = random.Random(seed)
    at = datetime(2026, 1, 31, 9, tzinfo=UTC)
    logins, transfers = list[dict[str, Any]](), list[dict[str, Any]]()
    while len(logins) < count:
        at += timedelta(seconds=draw.randrange(5, 300))
        account = f"a{draw.randrange(10) + 1}"
        failures = draw.choice([0, 0, 0, 1, 3, 4])
        for is_last in [False] * failures + [True]:
            at += timedelta(seconds=draw.randrange(5, 120))
            login = {
                "id": f"l{len(logins) + 1}",
                "account": account,
                "ok": is_last,
                "at": at.isoformat(),
            }
            logins.append(login)
        for _ in range(draw.choice([0, 1, 1, 2])):
            at += timedelta(seconds=draw.randrange(30, 500))
            transfer = {
                "id": f"t{len(transfers) + 1}",
                "account": account,
                "amount": draw.choice([20, 75.5, 480, 500, 1200, 9000.25]),
                "at": at.isoformat(),
            }
            transfers.append(transfer)
    return {"logins": logins[:count], "transfers": transfers}


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("what", choices=("logins", "transfers"))
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--count", type=int, default=200)
    given = arguments.parse_args()
    for event in events(given.seed, given.count)[given.what]:
        print(json.dumps(event))
