"""The reader's process: repeats one query over several tables, and counts wrong answers.

The process is started with `python -m demo.judgement.reader PROJECT LOG`, and runs until its
standard input is closed. It prints a `Verdict` as a line of JSON every half second, and once more
at the end. For each answer, it writes a line with the time and the offsets to the file LOG.
Freshness is computed from these lines.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import IO

from demo.judgement.verdict import Observation, Verdict, after_answer, after_error
from demo.processes.end_of_input import stop_at_end_of_input
from kappa.base.errors import KappaError
from kappa.base.settings import load_settings
from kappa.serving.query.pin.catalog import pin_served
from kappa.serving.query.pin.snapshot import Snapshot
from kappa.serving.query.query import connect_reader
from kappa.state.store import Store, open_store

# Queries without a pause would take their CPU from the jobs.
_PAUSE_SECONDS = 0.1
_SPEAK_SECONDS = 0.5
_LEASE_SECONDS = 30.0
# Three tables and a view in one answer: the view adds up the same rows again, after a join.
_QUESTION = """
select (select sum(flights) from delays)::bigint,
    (select sum(flights) from departures)::bigint,
    (select sum(flights) from carriers)::bigint,
    (select sum({cancelled}) from delays)::bigint,
    (select sum(flights - departed) from departures)::bigint,
    (select count(*) from delays where {foreign}),
    (select count(*) from rejects where topic = 'flights'),
    (select count(*) from planes)
"""
# At equal offsets the two versions differ in `delays` alone: a cancelled flight is on time to
# version 1, and not to version 2.
_QUESTIONS = {
    1: _QUESTION.format(cancelled="flights - departed", foreign="on_time < flights - departed"),
    2: _QUESTION.format(cancelled="cancelled", foreign="on_time > departed"),
}


def look(store: Store) -> Observation:
    """Queries the tables that are served now, and returns the counts in the answer."""
    with pin_served(store, lease_seconds=_LEASE_SECONDS) as pinned:
        snapshot = pinned.snapshot
        with connect_reader(snapshot, store) as reader:
            (
                (delays, departures, carriers, cancelled, not_departed, foreign, rejects, _planes),
            ) = reader.rows(_QUESTIONS[_version(snapshot)]).rows
        pinned.confirm_kept()
    build = snapshot.serving["flights"]
    frontier = snapshot.frontiers[build]
    tallies = frontier.tally.get("flights", {}).values()
    return Observation(
        at=time.monotonic(),
        generation=snapshot.generation,
        build=build,
        offsets=frontier.offsets,
        flights={
            "delays": delays,
            "departures": departures,
            "carriers": carriers,
            "frontier": sum(tally.decoded for tally in tallies),
        },
        cancelled={"delays": cancelled, "departures": not_departed},
        rejects={"rejects": rejects, "frontier": sum(tally.rejected for tally in tallies)},
        foreign=foreign,
    )


def _version(snapshot: Snapshot) -> int:
    """Returns the version that serves. Only version 2 has a column for cancelled flights.

    If no version serves, returns 1; a query then raises an error.
    """
    births = [
        snapshot.births[build]
        for pipeline, build in snapshot.serving.items()
        if pipeline == "flights"
    ]
    return 2 if any("cancelled" in dict(birth.table("delays").columns) for birth in births) else 1


def main() -> int:
    """Repeats the query until standard input is closed.

    The exit code is 0 if there were answers and none of them was wrong.
    """
    parser = argparse.ArgumentParser(prog="python -m demo.judgement.reader")
    parser.add_argument("project", type=Path)
    parser.add_argument("log", type=Path)
    given = parser.parse_args()
    store, stop = open_store(load_settings(given.project)), stop_at_end_of_input()
    verdict, before, spoken = Verdict(), None, 0.0
    with given.log.open("w", encoding="utf-8") as log:
        while not stop.wait(_PAUSE_SECONDS):
            try:
                now = look(store)
            except KappaError as error:
                verdict = after_error(verdict, str(error))
            else:
                verdict, before = after_answer(verdict, before, now), now
                _write(log, now)
            if time.monotonic() - spoken > _SPEAK_SECONDS:
                spoken = _speak(verdict)
        _speak(verdict)
    return 0 if verdict.clean else 1


def _write(log: IO[str], now: Observation) -> None:
    log.write(json.dumps({"at": now.at, "build": now.build, "offsets": now.offsets.plain()}) + "\n")


def _speak(verdict: Verdict) -> float:
    print(json.dumps(asdict(verdict)), flush=True)
    return time.monotonic()


if __name__ == "__main__":
    sys.exit(main())
