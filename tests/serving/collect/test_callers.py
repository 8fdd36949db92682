"""Laws of the collector's callers and of repeats, without a broker."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kappa.base.errors import SettingsError
from kappa.base.sections import CollectSettings, Role, SourceSettings
from kappa.kafka.live_producer import Placed, Undelivered
from kappa.serving.access.accounts import Accounts
from kappa.serving.access.roles import Forbidden
from kappa.serving.access.tokens import TokenFile
from kappa.serving.collect.callers import Callers, Rate
from kappa.serving.collect.lines import Invalid, Lines, reply_of, token_of
from kappa.serving.collect.request_answers import Remembered, go_on, key_of
from kappa.serving.http.problem import HttpError
from kappa.serving.http.token import WaitingLine


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


@pytest.mark.parametrize("sender", ["waits", "leaves"])
def test_a_repeat_at_any_moment_sends_nothing_twice(sender: str) -> None:
    """The work ends one or more turns of the loop before its sender is told, or after it has left.

    The repeats come in the same turn as the end of the work, and in each of the next ones.
    """

    async def play() -> None:
        remembered, count, acknowledged = Remembered(100), 0, asyncio.Event()

        async def work(_: Lines | None) -> Lines:
            nonlocal count
            count += 1
            await acknowledged.wait()
            return lines(Placed(0, 7))

        def post() -> asyncio.Task[Lines]:
            return asyncio.create_task(remembered.once(("s", "t", "k"), b"body", work))

        first = post()
        await asyncio.sleep(0)
        if sender == "leaves":
            first.cancel()
        acknowledged.set()
        repeats = []
        for _ in range(8):
            repeats.append(post())
            await asyncio.sleep(0)
        found = await asyncio.gather(*repeats)
        assert count == 1
        assert all(each is found[0] for each in found)

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


def callers_of(file: TokenFile, **settings: Any) -> Callers:
    """Returns the callers of a collector for two topics, on this machine."""
    chosen = CollectSettings(topics=["visits", "orders"], **settings)
    return Callers(chosen, "127.0.0.1", WaitingLine(0), Accounts(file=TokenFile(file.path)))


def test_a_token_to_collect_sends_to_its_topics(tmp_path: Path) -> None:
    """A new token is accepted at once. A token with another role may not send."""
    file = TokenFile(tmp_path / "tokens.json")
    callers = callers_of(file)
    assert callers.known("") is not None
    reader = file.add_token("grafana", [Role.READ], made_by="me")
    assert callers.known("") is not None, "a token to read asks no sender for one"

    sender = file.add_token("shop", [Role.COLLECT], topics=["visits"], made_by="me")
    found, other = callers.known(sender), callers.known(reader)

    assert callers.known("") is None
    assert callers.admitted_at_once({"host": "127.0.0.1"}) is None
    assert found is not None
    assert found.topics_of(["visits", "orders"]) == {"visits"}
    found.ensure_may("visits")
    with pytest.raises(Forbidden, match="token shop may not send to orders"):
        found.ensure_may("orders")
    assert other is not None
    with pytest.raises(Forbidden, match="needs the role collect, and it has read"):
        other.ensure_may("visits")
    file.remove_token("shop")
    assert callers.known(sender) is None
    assert callers.known("") is None, "the door stays shut"


def test_a_source_of_the_settings_sends_as_before(tmp_path: Path) -> None:
    """A source has the topics and the rate of the settings."""
    source = SourceSettings(token="0123456789abcdef", topics=["orders"], rate=1)
    callers = callers_of(TokenFile(tmp_path / "tokens.json"), sources={"till": source})

    found = callers.known("0123456789abcdef")
    assert found is not None
    found.ensure_may("orders")
    with pytest.raises(Forbidden, match="source till may not send to visits"):
        found.ensure_may("visits")
    found.ensure_rate(1, now=1.0)
    with pytest.raises(HttpError, match="source till sends more events a second"):
        found.ensure_rate(1, now=1.0)


def test_other_machines_send_with_tokens_alone(tmp_path: Path) -> None:
    """At a network address, the collector starts only if somebody has a token."""
    file = TokenFile(tmp_path / "tokens.json")
    file.add_token("grafana", [Role.READ], made_by="me")
    chosen = CollectSettings(topics=["visits"])

    with pytest.raises(SettingsError, match="other machines could ask"):
        Callers(chosen, "0.0.0.0", WaitingLine(0), Accounts(file=file))
    file.add_token("shop", [Role.COLLECT], made_by="me")
    Callers(chosen, "0.0.0.0", WaitingLine(0), Accounts(file=file))
