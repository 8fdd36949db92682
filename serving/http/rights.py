"""The act that each route needs, and the only check of a request's right to that act.

`needs` names the act of a route, and is written below the route's own decorator. `open_to_all`
marks a route that anybody may use. A route with neither mark is refused, because nobody has decided
who may use the route.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from fastapi import Request, WebSocket
from fastapi.requests import HTTPConnection

from kappa.declare.options import REJECTS
from kappa.serving.access.roles import (
    Act,
    Forbidden,
    Identity,
    ensure_may,
    table_object,
)
from kappa.serving.http.bounds import identity_in

_Route = TypeVar("_Route", bound=Callable[..., object])
# Lists the objects of a request's act; no object asks for the act to any object at all.
Objects = Callable[[HTTPConnection], Iterable[str]]
_MARK = "kappa_needs"


@dataclass(frozen=True, slots=True)
class RouteNeed:
    """The act that a route needs, for each object of a request.

    `act` is None if the route is open. `objects` lists the objects of a request.
    """

    act: Act | None
    objects: Objects


def needs(act: Act, objects: Objects = lambda _: ()) -> Callable[[_Route], _Route]:
    """Returns a decorator that marks a route with the act that each request needs.

    `objects` returns the objects that a request names. The client needs the right to the act on
    each of these objects. If there are none, the right to the act on any object is enough.
    """

    def marked(route: _Route) -> _Route:
        setattr(route, _MARK, RouteNeed(act, objects))
        return route

    return marked


def open_to_all(route: _Route) -> _Route:
    """Marks a route that anybody may use."""
    setattr(route, _MARK, RouteNeed(None, lambda _: ()))
    return route


def need_of(route: object) -> RouteNeed | None:
    """Returns the need of a route, or None if the route is not marked."""
    found: RouteNeed | None = getattr(route, _MARK, None)
    return found


def tables_in_path(connection: HTTPConnection) -> Iterable[str]:
    """Returns the table that the path of a request names, as an object of `may`."""
    asked = connection.path_params
    if "table" in asked:
        return (asked["table"],)
    return (table_object(asked["pipeline"], asked["name"]),)


def rejects_asked(connection: HTTPConnection) -> Iterable[str]:
    """Returns the rejects that a request reads, as an object of `may`.

    These are the rejects of the pipeline in the query, or the rejects of all pipelines.
    """
    pipeline = connection.query_params.get("pipeline", "")
    return (table_object(pipeline, REJECTS) if pipeline else REJECTS,)


async def ensure_route_allowed(connection: HTTPConnection) -> None:
    """Raises Forbidden unless the client of a request may use the request's route."""
    need = need_of(connection.scope.get("endpoint"))
    if need is None:
        raise Forbidden(
            "this address names no act, so nobody may use it", hint="this is a mistake of Kappa's"
        )
    if need.act is None:
        return
    identity = identity_in(connection.scope)
    if identity is None:
        raise Forbidden(
            "nobody is known to send this request", hint="send a token: Authorization: Bearer TOKEN"
        )
    for each in tuple(need.objects(connection)) or ("",):
        ensure_may(identity, need.act, each)


def asker(connection: HTTPConnection | Request | WebSocket) -> Identity:
    """Returns the client of a request that the gate has accepted."""
    found = identity_in(connection.scope)
    assert found is not None, "a route that needs an act has let the request in"
    return found
