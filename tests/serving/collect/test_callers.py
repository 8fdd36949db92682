"""Laws of callers and repeats, without a broker."""

from __future__ import annotations

import asyncio

import pytest

from kappa.kafka.live_producer import Placed, Undelivered
from kappa.serving.collect.callers import Rate
from kappa.serving.collect.lines import Invalid, Lines, reply_of, token_of
from kappa.serving.collect.remembered import Remembered, go_on, key_of
from kappa.serving.http.problem import HttpError


def lines(*outcomes: object) -> Lines:
    return Lines("t", range(1, len(outcomes) + 1), list(outcomes), is_batch=True)  # type: ignore[arg-type]  # outcomes


def test_what_is_taken_beyond_a_rate_is_waited_for() -> None:
    rate = Rate(10)

    assert rate.take(25, now=100.0) == 0
    assert rate.take(1, now=100.0) == pytest.approx(1.6)
    assert rate.take(1, now=101.5) > 0
    assert rate.take(1, now=101.7) == 0
    assert Rate(0).take(10**9, now=0.0) == 0


def test_a_key_is_visible_ascii() -> None:
    assert key_of(None) == ""
    assert key_of('"8e03978e-40d5-43dd"') == key_of("8e03978e-40d5-43dd")
    for wrong in ("", "a b", "ä", "x" * 256):
        with pytest.raises(HttpError):
            key_of(wrong)


def test_of_a_batch_that_failed_in_part_the_rest_alone_is_sent() -> None:
    async def play() -> None:
        remembered, attempts = Remembered(100), []
        placed, failed = Placed(0, 7), Undelivered("away", is_passing=True)

        async def work(before: Lines | None) -> Lines:
            attempts.append(before)
            return lines(placed, failed if before is None else Placed(0, 9), Invalid("x", "y"))

        first = await remembered.once(("s", "t", "k"), b"body", work)
        again = await remembered.once(("s", "t", "k"), b"body", work)
        assert await remembered.once(("s", "t", "k"), b"body", work) is again
        assert attempts == [None, first]
        assert (reply_of(first).status, reply_of(again).status) == (503, 207)
        repeated = lines(Undelivered("again", is_passing=True), failed, Invalid("x", "y"))
        go_on(repeated, first)
        assert repeated.outcomes[:2] == [placed, failed]
        assert token_of(again) == "t:0=10"

    asyncio.run(play())


def test_what_is_remembered_is_bounded() -> None:
    async def play() -> None:
        remembered, count = Remembered(10), 0

        async def work(_: Lines | None) -> Lines:
            nonlocal count
            count += 1
            return lines()

        for number in range(100):
            await remembered.once(("s", "t", str(number)), b"", work)
        await remembered.once(("s", "t", "99"), b"", work)
        assert count == 100
        await remembered.once(("s", "t", "0"), b"", work)
        assert count == 101
        assert len(remembered._entries) <= 11

    asyncio.run(play())
