"""The open streams of a server, which end with the server: no client ends them earlier."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import anyio
from fastapi import FastAPI
from fastapi.responses import StreamingResponse


class OpenStreams:
    """The open streams of a server, for use in the server's loop."""

    def __init__(self) -> None:
        self._scopes: set[anyio.CancelScope] = set()
        self._has_ended = False

    def end(self) -> None:
        """Ends all streams, and also streams that begin later."""
        self._has_ended = True
        for each in self._scopes:
            each.cancel()

    @contextmanager
    def until_end(self) -> Iterator[anyio.CancelScope]:
        """Runs a stream; if the server ends first, only cancels the block."""
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            if self._has_ended:
                scope.cancel()
            try:
                yield scope
            finally:
                self._scopes.discard(scope)


class EndingResponse(StreamingResponse):
    """A stream that ends like other answers if the server ends; a client comes back later."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Sends the stream until it ends, the client leaves, or the server ends."""
        with open_streams(scope["app"]).until_end() as until_end:
            await super().__call__(scope, receive, send)
        if until_end.cancelled_caught:
            with suppress(RuntimeError, OSError):
                await send({"type": "http.response.body", "body": b"", "more_body": False})


def open_streams(app: FastAPI) -> OpenStreams:
    """Returns the open streams of a server."""
    found = app.state.streams
    assert isinstance(found, OpenStreams), "make_app was given it"
    return found
