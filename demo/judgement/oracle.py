"""The oracle: the rows that tables must have, computed by DuckDB from the producer's ledger alone.

The oracle uses no code of Kappa's engine: it reads all records of the ledger at once, in SQL,
without slices, folds, commits or frontiers. Rows are compared exactly, as multisets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import duckdb

from kappa.state.offsets import Offsets

_FLIGHT = """{"id": "VARCHAR", "day": "DATE", "carrier": "VARCHAR", "tailnum": "VARCHAR",
    "origin": "VARCHAR", "scheduled": "VARCHAR", "dep_time": "INTEGER", "dep_delay": "INTEGER",
    "distance": "INTEGER"}"""
_PLANE = """{"year": "INTEGER", "type": "VARCHAR", "manufacturer": "VARCHAR", "model": "VARCHAR",
    "engines": "INTEGER", "seats": "INTEGER"}"""
_AIRPORT = (
    '{"name": "VARCHAR", "lat": "DOUBLE", "lon": "DOUBLE", "alt": "INTEGER", "tzone": "VARCHAR"}'
)

# The one place where the two versions differ.
_ON_TIME = {
    1: "coalesce(dep_delay, 0) < 15",
    2: "dep_time is not null and coalesce(dep_delay < 15, false)",
}

_DEPARTURES = """
    select origin, time_bucket(interval 1 hour, scheduled::timestamptz) as hour,
        count(*) as flights, count(dep_time) as departed, sum(distance)::bigint as miles,
        false as miles_overflow
    from flights group by all"""
_CARRIERS = """
    select carrier, coalesce(name, carrier) as name, sum(flights)::bigint as flights,
        round(100.0 * sum(on_time) / sum(flights), 2) as on_time_percent,
        round(sum(delay_minutes) / nullif(sum(departed), 0), 2) as mean_delay,
        max(worst_delay) as worst_delay
    from delays left join airlines using (carrier) group by all"""
_PLANES = f"""
    select key as tailnum, t.* from (
        select key, unnest([json_transform(decode(value), '{_PLANE}')]) as t
        from latest where topic = 'planes')"""
_AIRLINES = """
    select key as carrier, json_extract_string(decode(value), '$.name') as name
    from latest where topic = 'airlines'"""
_AIRPORTS = f"""
    select key as faa, t.* from (
        select key, unnest([json_transform(decode(value), '{_AIRPORT}')]) as t
        from latest where topic = 'airports')"""
_FLEET = """
    select manufacturer, count(*) as planes, sum(seats)::bigint as seats
    from planes group by manufacturer"""
_REJECTS = 'select topic, partition, "offset" from log where not valid'

# The query of each table, for both sides; rejects only by their place, which the producer knows.
ASKED: Mapping[str, str] = {
    "delays": "select * from delays",
    "departures": "select * from departures",
    "planes": "select * from planes",
    "airlines": "select * from airlines",
    "airports": "select * from airports",
    "carriers": "select * from carriers",
    "fleet": "select * from fleet",
    "rejects": 'select topic, partition, "offset" from rejects',
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of a table: its number of served rows, and a few rows that only one side has.

    `missing` contains rows that are expected but not served. `unexpected` contains rows that are
    served but not expected.
    """

    table: str
    rows: int
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]

    @property
    def equal(self) -> bool:
        """Returns True if both sides have the same rows."""
        return not self.missing and not self.unexpected


class Oracle:
    """Computes the rows of versions 1 and 2 from the ledger, up to given offsets."""

    def __init__(self, ledger: Path, offsets: Offsets) -> None:
        """Opens an in-memory DuckDB database with the ledger's records before `offsets`."""
        self._connection = duckdb.connect(":memory:")
        self._connection.execute("set TimeZone = 'UTC'")
        self._connection.execute(
            "create table upto (topic varchar, partition int, following bigint)"
        )
        self._connection.executemany(
            "insert into upto values (?, ?, ?)",
            [list(each) for each in offsets.items()] or [["", 0, 0]],
        )
        self._connection.execute(
            "create table log as select l.* from read_parquet(?) l "
            "join upto using (topic, partition) where l.offset < following",
            [str(ledger)],
        )
        self._connection.execute(
            "create table flights as select t.* from ("
            f"select unnest([json_transform(decode(value), '{_FLIGHT}')]) as t "
            "from log where topic = 'flights' and valid)"
        )
        # A key is in one partition only, so its newest record has the greatest offset.
        newest = (
            "select topic, key, value from log where topic <> 'flights' "
            'qualify row_number() over (partition by topic, key order by "offset" desc) = 1'
        )
        self._connection.execute(
            f"create table latest as select * from ({newest}) where value is not null"
        )

    def rows(self, table: str, version: int) -> list[tuple[Any, ...]]:
        """Returns all rows that a table or view must have under version 1 or 2."""
        return self._connection.execute(f"with {self._all(version)} {ASKED[table]}").fetchall()

    @property
    def records(self) -> int:
        """Returns the number of records in the ledger before the given offsets."""
        ((records,),) = self._connection.execute("select count(*) from log").fetchall()
        return int(records)

    def close(self) -> None:
        """Closes the DuckDB connection."""
        self._connection.close()

    def __enter__(self) -> Self:
        """Returns this object."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the DuckDB connection."""
        self.close()

    @staticmethod
    def _all(version: int) -> str:
        cancelled = (
            ", sum((dep_time is null)::int)::bigint as cancelled, false as cancelled_overflow"
            if version == 2
            else ""
        )
        delays = f"""
    select carrier, day, count(*) as flights, count(dep_time) as departed,
        sum(({_ON_TIME[version]})::int)::bigint as on_time, false as on_time_overflow{cancelled},
        sum(dep_delay)::bigint as delay_minutes,
        false as delay_minutes_overflow, max(dep_delay) as worst_delay
    from flights group by all"""
        parts = {
            "delays": delays,
            "departures": _DEPARTURES,
            "planes": _PLANES,
            "airlines": _AIRLINES,
            "airports": _AIRPORTS,
            "carriers": _CARRIERS,
            "fleet": _FLEET,
            "rejects": _REJECTS,
        }
        return ", ".join(f"{name} as ({sql})" for name, sql in parts.items())


def compare(
    table: str,
    served: Sequence[tuple[Any, ...]],
    expected: Sequence[tuple[Any, ...]],
    *,
    shown: int = 3,
) -> Comparison:
    """Compares two multisets of rows exactly.

    The result contains at most `shown` differing rows of each side.
    """
    left: dict[tuple[Any, ...], int] = {}
    for row in served:
        left[row] = left.get(row, 0) + 1
    missing = []
    for row in expected:
        if left.get(row, 0):
            left[row] -= 1
        else:
            missing.append(row)
    unexpected = [row for row, times in left.items() for _ in range(times)]
    return Comparison(
        table, len(served), tuple(map(str, missing[:shown])), tuple(map(str, unexpected[:shown]))
    )
