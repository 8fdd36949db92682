"""A server that runs in this process on real uvicorn, and its clients, for tests of HTTP."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from http.client import HTTPConnection
from typing import Any, Self

import uvicorn
from fastapi import APIRouter

from kappa.serving.access.accounts import Accounts
from kappa.serving.http import events
from kappa.serving.http.app_state import Stand
from kappa.serving.http.bounds import Bounds
from kappa.serving.http.connection_limits import PatientServer, uvicorn_settings
from kappa.serving.http.http import MountedApp, make_app
from kappa.serving.http.open_streams import OpenStreams
from kappa.serving.http.page.render import ProjectPlace
from kappa.serving.http.snapshots import Snapshots
from kappa.serving.outlets.changes.follower_registry import ChangeHub
from kappa.serving.query.sandbox.question import Allowance
from kappa.serving.query.sandbox.sandbox import Sandbox
from kappa.state.store import Store

QUERY = "/api/v1/query"


class Server:
    """A server that runs in this process, with methods that send requests to it."""

    def __init__(
        self,
        store: Store,
        allowance: Allowance,
        *,
        token: str | None = None,
        accounts: Accounts | None = None,
        bounds: Bounds | None = None,
        router: APIRouter = events.router,
        desk: object = None,
        counts: object = None,
        more: tuple[APIRouter, ...] = (),
        port: int = 0,
        changes: ChangeHub | None = None,
        grace_seconds: int = 1,
        mounted: MountedApp | None = None,
    ) -> None:
        self.sandbox = Sandbox(allowance)
        stand = Stand(store, self.sandbox, Snapshots(store, lease_seconds=60), 60, lambda: ())
        streams = OpenStreams()
        app = make_app(
            stand,
            accounts=accounts or Accounts(token=token),
            routers=(router, *more),
            mounted=mounted,
            bounds=bounds,
            state={
                "desk": desk,
                "pulse": getattr(desk, "change_marker", None),
                "counts": counts,
                "changes": changes,
                "streams": streams,
                "place": ProjectPlace("shop", str(store.url), "canary"),
            },
        )
        # Of what routes share.
        self.state = app._inside.state
        self._listening = socket.create_server(("127.0.0.1", port), backlog=512)
        self.port = self._listening.getsockname()[1]
        self._server = PatientServer(
            uvicorn.Config(
                app,
                timeout_graceful_shutdown=grace_seconds,
                **uvicorn_settings(bounds or Bounds()),
            ),
            streams.end,
        )
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._listening]}
        )

    def __enter__(self) -> Self:
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive()
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._listening.close()

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> Answered:
        """Sends a request and returns the answer.

        A body that is not bytes is sent as JSON. Each `_` in a header's name is sent as `-`.
        """
        connection = HTTPConnection("127.0.0.1", self.port, timeout=300)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        if content is not None:
            sent.setdefault("Content-Type", "application/json")
        with contextlib.closing(connection):
            connection.request(method, path, content, sent)
            response = connection.getresponse()
            return Answered(
                response.status,
                {name.lower(): value for name, value in response.getheaders()},
                response.read(),
            )

    def query(self, sql: str, **headers: str) -> Answered:
        return self.ask("POST", QUERY, {"sql": sql}, **headers)


class Answered:
    """A server's answer to a request."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def document(self) -> Any:
        return json.loads(self.body)


def wait_until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def problem(answered: Answered) -> tuple[int, str, str]:
    """Returns the status, kind and detail of an answer, which must be a problem document."""
    assert answered.headers["content-type"] == "application/problem+json"
    assert answered.document["status"] == answered.status
    return (
        answered.status,
        answered.document["type"].rpartition(":")[2],
        answered.document["detail"],
    )
