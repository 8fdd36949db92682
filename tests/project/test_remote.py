"""`kappa.connect`: a project over HTTP on a real server, with the interface of `kappa.Project`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import httpx2
import pytest
from asking import Server
from page_world import World

import kappa
from kappa.base.errors import Conflict, KappaError, Unreachable, UsageError
from kappa.project.remote_project import RemoteProject
from kappa.replay.page import api
from kappa.serving.http import changes
from kappa.serving.outlets.changes.follower_registry import ChangeHub
from kappa.serving.query.sandbox.question import Allowance

pytestmark = pytest.mark.slow

TOKEN = "token-of-the-tests-0123456789"
Scene = Callable[[RemoteProject], Awaitable[None]]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    made = World(tmp_path_factory.mktemp("remote"))
    made.build("web-1")
    made.goes_live("web-1", 1)
    return made


@pytest.fixture(scope="module")
def server(world: World) -> Iterator[Server]:
    hub = ChangeHub(world.store, lease_seconds=60, keep_seconds=60, limits=None)
    with Server(
        world.store,
        Allowance(at_once=2),
        token=TOKEN,
        router=api.router,
        more=(changes.router,),
        desk=world.desk,
        changes=hub,
    ) as running:
        yield running


def play(server: Server, scene: Scene, token: str | None = TOKEN) -> None:
    async def connected() -> None:
        async with kappa.connect(f"http://127.0.0.1:{server.port}", token=token) as project:
            await scene(project)

    asyncio.run(connected())


def test_an_answer_over_http_has_each_form(server: Server) -> None:
    async def scene(project: RemoteProject) -> None:
        found = await project.query("select hits from page_hits order by hits limit 2")

        assert found.fetchall() == [(1,), (2,)]
        assert found.df()["hits"].to_list() == [1, 2]
        assert (found.generation, found.builds, found.truncated) == (1, {"web": "web-1"}, False)
        assert "page_hits" in [each["table"] for each in await project.tables()]
        assert [each["build"] for each in (await project.status())["builds"]] == ["web-1"]
        assert [each["state"] for each in await project.history()] == ["served"]
        assert await project.rejects(limit=5) == []

    play(server, scene)


def test_a_pin_over_http_stays(server: Server, world: World) -> None:
    counted = "select count(*) as n from page_hits"

    async def scene(project: RemoteProject) -> None:
        async with project.pin() as pinned:
            before = (await pinned.query(counted)).fetchall()
            world.grows("web-1", hits=1_000)
            assert (await pinned.query(counted)).fetchall() == before
        with pytest.raises(Conflict):
            await pinned.query(counted)
        assert (await project.query(counted)).fetchall() == [(before[0][0] + 1,)]

    play(server, scene)


def test_changes_over_http_go_on(server: Server, world: World) -> None:
    async def scene(project: RemoteProject) -> None:
        stream = project.changes("page_hits", columns=["hits"])
        first = await anext(stream)
        world.grows("web-1", hits=7_000)
        second = await anext(stream)
        await stream.aclose()

        assert (first.head["kind"], len(first.rows) >= 40) == ("snapshot", True)
        assert [(each["op"], each["after"]["hits"]) for each in second.rows] == [("insert", 7_000)]
        assert second.cursor != first.cursor

    play(server, scene)


def test_errors_over_http_are_the_same(server: Server, world: World) -> None:
    async def scene(project: RemoteProject) -> None:
        with pytest.raises(UsageError, match="nothing") as caught:
            await project.query("select * from nothing")
        assert caught.value.hint
        with pytest.raises(UsageError):
            await anext(project.changes("nothing"))
        with pytest.raises(Unreachable, match="not up"):
            await project.undo("web")

    play(server, scene)


def test_a_wrong_token_is_told(server: Server) -> None:
    async def scene(project: RemoteProject) -> None:
        with pytest.raises(Exception, match="no token was given, or a wrong one"):
            await project.status()

    play(server, scene, token=None)


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_server_that_ends_its_changes_is_told(*, is_cut: bool) -> None:
    """If an endless stream just ended, a program would believe that nothing changes any more."""
    events = (
        'event: begin\ndata: {"kind": "table"}\n\nevent: rows\ndata: [{"op": "insert"}]\n\n'
        'event: commit\nid: c1\ndata: {"cursor": "c1"}\n\n'
    )

    async def content() -> AsyncIterator[bytes]:
        yield events.encode()
        if is_cut:
            raise httpx2.ReadError("reset by peer")

    def answer(_request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(
            200, headers={"Content-Type": "text/event-stream"}, content=content()
        )

    async def follow() -> None:
        transport = httpx2.MockTransport(answer)
        client = httpx2.AsyncClient(transport=transport, base_url="http://server")
        async with RemoteProject(client) as project:
            stream = project.changes("page_hits")
            assert (await anext(stream)).cursor == "c1"
            with pytest.raises(Unreachable, match="http://server"):
                await anext(stream)

    asyncio.run(follow())


def test_a_token_that_no_header_carries_is_refused() -> None:
    """A token from a file may have a line end; no error shows the token."""
    for token in (f"{TOKEN}\n", "tökén-of-the-tests-0123456789"):
        with pytest.raises(UsageError, match="the token has characters") as refused:
            kappa.connect("http://127.0.0.1:9", token=token)
        assert token.strip() not in str(refused.value)


@pytest.mark.parametrize("url", ["", "127.0.0.1:8717", "http://[::1", "ftp://here", "http://a\nb"])
def test_what_is_no_address_of_a_server_is_told(url: str) -> None:
    async def scene() -> None:
        async with kappa.connect(url) as project:
            await project.status()

    with pytest.raises((UsageError, Unreachable)):
        asyncio.run(scene())


@pytest.mark.parametrize(
    ("status", "content"),
    [(200, b"<html>"), (200, b""), (302, b""), (502, b"[]"), (500, b'"no"'), (404, b"<html>")],
)
def test_another_server_than_kappas_is_told(status: int, content: bytes) -> None:
    """The page of a proxy, or of another program at that port, is not an answer of Kappa."""
    transport = httpx2.MockTransport(lambda _request: httpx2.Response(status, content=content))

    async def ask(scene: Callable[[RemoteProject], Awaitable[Any]]) -> None:
        client = httpx2.AsyncClient(transport=transport, base_url="http://server")
        async with RemoteProject(client) as project:
            with pytest.raises(KappaError) as told:
                await scene(project)
            assert str(status) in told.value.message

    async def pinned(project: RemoteProject) -> None:
        async with project.pin():
            pass

    scenes: list[Callable[[RemoteProject], Awaitable[Any]]] = [
        *(RemoteProject.status, RemoteProject.tables, RemoteProject.rejects, pinned),
        *(lambda project: project.query("select 1"), lambda project: project.undo("web")),
        lambda project: anext(project.changes("page_hits")),
    ]
    for scene in scenes:
        asyncio.run(ask(scene))


def test_a_write_token_that_no_header_carries(server: Server) -> None:
    async def scene(project: RemoteProject) -> None:
        for after in ("a\nb", "é"):
            with pytest.raises(UsageError):
                await project.query("select 1", after=after)

    play(server, scene)


def test_a_server_that_is_away_is_told() -> None:
    async def scene() -> None:
        async with kappa.connect("http://127.0.0.1:9") as project:
            with pytest.raises(Unreachable, match="does not answer"):
                await project.status()

    asyncio.run(scene())
