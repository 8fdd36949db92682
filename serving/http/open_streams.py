"""The open streams of a server, which the server ends when it shuts down.

The server must end the streams, because a client may listen forever.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import anyio
from fastapi import FastAPI
from fastapi.responses import StreamingResponse


class OpenStreams:
    """The open streams of a server, for use in the server's event loop."""

    def __init__(self) -> None:
        self._scopes: set[anyio.CancelScope] = set()
        self._has_ended = False

    def end(self) -> None:
        """Ends all streams. Streams that begin later end at once."""
        self._has_ended = True
        for each in self._scopes:
            each.cancel()

    @contextmanager
    def until_end(self) -> Iterator[anyio.CancelScope]:
        """Runs the block as a stream, and cancels the block when the server ends.

        The code after the block still runs.
        """
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            if self._has_ended:
                scope.cancel()
            try:
                yield scope
            finally:
                self._scopes.discard(scope)


class EndingResponse(StreamingResponse):
    """A streamed response that ends without an error if the server ends.

    So the client reconnects later.
    """

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
