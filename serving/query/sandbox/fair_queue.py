"""The places for queries, and the order in which waiting clients get them.

A query that runs occupies a place. A free place is given to the waiting client that has used the
least time so far. So a client with many connections, or with slow queries, delays mainly itself,
and uses no more than its share of the places. The times are counted as in start-time fair queueing:
a client that was idle starts with the counted time of the query that started last, so the client
gets no credit for its idle hours.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from kappa.serving.query.sandbox.question import Allowance, Busy

# Clients that are no later than others need no entry.
_MOST_CLIENTS = 1000


@dataclass(eq=False, frozen=True, slots=True)
class _Waiting:
    client: str
    turn: asyncio.Future[None]


class FairPlaces:
    """The places of a sandbox: each place allows one query to run.

    The object is for the tasks of one event loop.
    """

    def __init__(self, allowance: Allowance) -> None:
        self._allowance = allowance
        self._free = allowance.at_once
        self._waiting: list[_Waiting] = []
        # The seconds that each client has used, counted on from the start of its first query.
        self._used: dict[str, float] = {}
        # The count at which the query began that began last.
        self._begun = 0.0

    @asynccontextmanager
    async def take_place(self, client: str) -> AsyncIterator[None]:
        """Waits for a free place, and occupies the place during the block.

        Raises Busy if no place is free within the time that a query may take.
        """
        try:
            async with asyncio.timeout(self._allowance.seconds):
                await self._wait_for_turn(client)
        except TimeoutError:
            raise Busy(
                f"all {self._allowance.at_once} places for queries are taken",
                hint="ask again in a while; serve.queries in kappa.toml lets more run at once",
            ) from None
        began, count = time.monotonic(), self._count_of(client)
        self._begun = count
        try:
            yield
        finally:
            used = max(count, self._used.get(client, 0.0)) + time.monotonic() - began
            self._used[client] = used
            if len(self._used) > _MOST_CLIENTS:
                self._used = {name: each for name, each in self._used.items() if each > self._begun}
            self._pass_on()

    def _count_of(self, client: str) -> float:
        return max(self._begun, self._used.get(client, 0.0))

    async def _wait_for_turn(self, client: str) -> None:
        if self._free:
            self._free -= 1
            return
        waiting = _Waiting(client, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        try:
            await waiting.turn
        except BaseException:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            else:
                # The turn came in the instant in which the waiting ended.
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """Gives a free place to the client whose turn is next."""
        # Of equal clients, the one that has waited longest is the first in the list.
        there = [each for each in self._waiting if not each.turn.done()]
        if not there:
            self._free += 1
            return
        chosen = min(there, key=lambda each: self._count_of(each.client))
        self._waiting.remove(chosen)
        chosen.turn.set_result(None)
