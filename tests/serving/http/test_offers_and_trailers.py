"""Unusual but allowed requests: upgrade offers, trailers, and bodies that do not arrive."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from asking import Server
from collecting import Connected
from served import DELAYS, ROWS_OF_DELAYS, Platform

from kappa.serving.http.bounds import Bounds
from kappa.serving.query.sandbox.question import Allowance
from kappa.state.store import Store

pytestmark = pytest.mark.slow

SQL = b"select 7 as n"
OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQ\r\n"
QUERY = b"POST /api/v1/query HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/sql\r\n"
CHUNKED = QUERY + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n" % (len(SQL), SQL)
TOKEN = "sesame of enough letters"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    platform = Platform(Store(tmp_path_factory.mktemp("offers") / "root"))
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS})
    return platform.store


@pytest.fixture(scope="module")
def server(store: Store) -> Iterator[Server]:
    with Server(store, Allowance(at_once=1), bounds=Bounds(head_seconds=0.5)) as server:
        yield server


def answer(client: Connected) -> tuple[int, Any]:
    """Reads one answer from a connection."""
    status, _, body = client.answer()
    return status, json.loads(body)


def length(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n" % len(body)


@pytest.mark.parametrize("is_split", [False, True])
def test_a_body_behind_an_offer_of_http_2_is_read(server: Server, is_split: bool) -> None:
    head = QUERY + OFFER + length(SQL)
    with Connected(server.port) as client:
        for _ in range(2):
            for sent in (head, SQL) if is_split else (head + SQL,):
                client.send(sent)
            status, found = answer(client)
            assert (status, found["rows"]) == (200, [{"n": 7}])


def test_a_body_behind_an_offer_is_no_request(server: Server) -> None:
    hidden = b"GET /hidden HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with Connected(server.port) as client:
        client.send(QUERY + OFFER + length(hidden) + hidden)
        assert answer(client)[0] == 400
        client.send(QUERY + length(SQL) + SQL)
        assert answer(client)[1]["rows"] == [{"n": 7}]


def test_offers_may_follow_one_another_and_end_the_connection(server: Server) -> None:
    ends = OFFER.replace(b"Upgrade, ", b"Upgrade, close, ", 1)
    with Connected(server.port) as client:
        client.send(QUERY + OFFER + length(SQL) + SQL + QUERY + ends + length(SQL) + SQL)
        assert [answer(client)[0] for _ in range(2)] == [200, 200]
        assert client.is_ended()


def test_what_trails_a_body_is_no_header(store: Store) -> None:
    with (
        Server(store, Allowance(at_once=1), token=TOKEN) as server,
        Connected(server.port) as client,
    ):
        client.send(CHUNKED + f"Authorization: Bearer {TOKEN}\r\n\r\n".encode())
        assert answer(client)[0] == 401


def test_what_trails_a_body_has_a_bound(server: Server) -> None:
    with Connected(server.port) as client:
        client.send(CHUNKED)
        with pytest.raises(ConnectionError):
            client.send(b"a: b\r\n" * (1 << 22))


def test_a_body_in_many_small_pieces_has_no_bound_of_a_head(server: Server) -> None:
    pieces = [b"1\r\n \r\n"] * Bounds().head_bytes
    with Connected(server.port) as client:
        head = CHUNKED.removesuffix(b"0\r\n")
        client.send(head + b"".join(pieces) + b"0\r\n\r\n")
        assert answer(client)[1]["rows"] == [{"n": 7}]


def test_a_body_that_stays_away_behind_its_answer_ends_the_connection(server: Server) -> None:
    with Connected(server.port) as client:
        client.send(b"POST /api/v1/query HTTP/1.1\r\nHost: elsewhere\r\n" + length(SQL))
        assert answer(client)[0] == 403
        client.send(SQL[:1])
        with suppress(ConnectionError):
            assert client.is_ended()
