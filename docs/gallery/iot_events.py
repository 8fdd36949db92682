"""Makes readings: `iot_events.py | kappa produce measurements - --envelope`."""

import argparse
import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

SENSORS = {"cellar": 12.0, "hall": 19.5, "roof": -3.0}


def events(seed: int = 1, count: int = 65) -> list[dict[str, Any]]:
    """Draws `count` minutes of readings, as envelopes, in the order in which they arrive.

    The sensor on the roof has no network now and then, and sends later what it has measured. By
    default the last such time does not end.
    """
    draw = random.Random(seed)
    began = datetime(2026, 1, 31, 14, tzinfo=UTC)
    arrived = began
    readings, offline = list[dict[str, Any]](), list[dict[str, Any]]()
    for minute in range(count):
        for sensor, celsius in SENSORS.items():
            at = began + timedelta(minutes=minute, seconds=draw.randrange(20))
            reading = {
                "sensor": sensor,
                "celsius": round(celsius + draw.uniform(-2, 2), 1),
                "at": at.isoformat(),
            }
            if sensor == "roof" and 10 <= minute % 40 < 25:
                offline.append(reading)
                continue
            for sent in (*offline, reading) if sensor == "roof" else (reading,):
                arrived = max(arrived, began + timedelta(minutes=minute, seconds=20))
                arrived += timedelta(seconds=1)
                readings.append({"key": sensor, "timestamp": arrived.isoformat(), "value": sent})
            if sensor == "roof":
                offline = []
    return readings


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--count", type=int, default=65)
    given = arguments.parse_args()
    for event in events(given.seed, given.count):
        print(json.dumps(event))
