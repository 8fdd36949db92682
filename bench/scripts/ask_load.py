"""Runs clients of a server in a closed loop: each sends its next query after receiving an answer.

    python ask_load.py WAY TARGET CLIENTS SECONDS KEYS SQL

WAY is `kappa` (TARGET is the URL of the server), `wire` (TARGET is the connection string of the
server for Postgres clients; the clients prepare their statement) or `duckdb` (TARGET is a statement
that creates the views). `{key}` in SQL is replaced by a random key below KEYS. The measurement
begins after one second. Prints JSON: the number of answers, the seconds, the p50 and p99 of the
latencies, the CPU seconds of this process, and the first errors.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection
from urllib.parse import urlsplit

WARM_SECONDS = 1.0


def kappa_asker(url: str) -> Callable[[], Callable[[str, int], object]]:
    """Returns a function that connects a new client to Kappa's HTTP server."""

    def connect() -> Callable[[str, int], object]:
        place = urlsplit(url)
        connection = HTTPConnection(place.hostname or "", place.port)

        def ask(sql: str, key: int) -> object:
            text = sql.replace("{key}", str(key)).encode()
            connection.request("POST", "/api/v1/query", text, {"Content-Type": "application/sql"})
            answer = connection.getresponse()
            body = answer.read()
            if answer.status != 200:
                raise RuntimeError(body.decode(errors="replace")[:300])
            return body

        return ask

    return connect


def wire_asker(dsn: str) -> Callable[[], Callable[[str, int], object]]:
    """Returns a function that connects a new Postgres client.

    The client prepares its statement, and sends the key as a parameter.
    """
    import psycopg  # other ways need none

    def connect() -> Callable[[str, int], object]:
        connection = psycopg.connect(dsn, autocommit=True)

        def ask(sql: str, key: int) -> object:
            given = {"key": key} if "{key}" in sql else None
            # A per cent sign is a mark to psycopg where there are parameters.
            text = sql if given is None else sql.replace("%", "%%").replace("{key}", "%(key)s")
            return connection.execute(text, given, prepare=True).fetchall()

        return ask

    return connect


def duckdb_asker(views: str) -> Callable[[], Callable[[str, int], object]]:
    """Creates a DuckDB database in this process, and returns a function that connects to it."""
    import duckdb  # the client of Kappa needs none

    database = duckdb.connect()
    database.execute("set threads = 2; set parquet_metadata_cache = true")
    database.execute(views)

    def connect() -> Callable[[str, int], object]:
        cursor = database.cursor()
        return lambda sql, key: cursor.execute(sql.replace("{key}", str(key))).fetchall()

    return connect


def main() -> None:
    """Runs the clients until the time is up, and prints the measurements."""
    way, target, clients, seconds, keys, sql = sys.argv[1:]
    connect = {"kappa": kappa_asker, "wire": wire_asker, "duckdb": duckdb_asker}[way](target)
    latencies: list[list[float]] = [[] for _ in range(int(clients))]
    errors: list[str] = []
    begin = time.monotonic() + WARM_SECONDS
    end = begin + float(seconds)

    def ask_until_end(mine: list[float], seed: int) -> None:
        chance, ask = random.Random(seed), connect()
        try:
            while (begun := time.monotonic()) < end:
                ask(sql, chance.randrange(int(keys)))
                if begun >= begin:
                    mine.append(time.monotonic() - begun)
        except Exception as error:  # noqa: BLE001  # any error is told, and there is no figure
            errors.append(f"{type(error).__name__}: {error}")

    threads = [
        threading.Thread(target=ask_until_end, args=(mine, seed))
        for seed, mine in enumerate(latencies)
    ]
    for thread in threads:
        thread.start()
    time.sleep(max(0.0, begin - time.monotonic()))
    before = time.process_time()
    for thread in threads:
        thread.join()
    taken = sorted(each for mine in latencies for each in mine)
    print(
        json.dumps(
            {
                "answers": len(taken),
                "seconds": float(seconds),
                "cpu": time.process_time() - before,
                "p50": taken[len(taken) // 2] if taken else None,
                "p99": taken[len(taken) * 99 // 100] if taken else None,
                "errors": errors[:3],
            }
        )
    )


if __name__ == "__main__":
    main()
