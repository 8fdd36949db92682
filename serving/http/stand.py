"""The objects that all routes share: store, sandbox, snapshots, the line of wrong tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import Request

from kappa.state.store import Store
from serving.http.problem import MEDIA_TYPE
from serving.http.snapshots import Snapshots
from serving.http.token import WaitingLine
from serving.sandbox.sandbox import Sandbox

API = "/api/v1"
# The answer of each route to an error (RFC 9457).
PROBLEM: dict[str, Any] = {
    "description": "What is wrong, and what to do now",
    "content": {
        MEDIA_TYPE: {
            "schema": {
                "type": "object",
                "required": ["type", "title", "status", "detail"],
                "properties": {
                    name: {"type": "integer" if name == "status" else "string"}
                    for name in ("type", "title", "status", "detail", "hint")
                },
            }
        }
    },
}


@dataclass(frozen=True, slots=True)
class Stand:
    """The objects that all routes share; `unready` lists what is missing, a sentence each."""

    store: Store
    sandbox: Sandbox
    snapshots: Snapshots
    lease_seconds: float
    unready: Callable[[], Sequence[str]]


def line_of(request: Request) -> WaitingLine:
    """Returns the line in which wrong tokens wait."""
    line = request.app.state.line
    assert isinstance(line, WaitingLine), "make_app has put it"
    return line


def stand_of(request: Request) -> Stand:
    """Returns the objects that all routes share."""
    stand = request.app.state.stand
    assert isinstance(stand, Stand), "make_app has put it"
    return stand
