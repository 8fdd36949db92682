"""The act that each route needs, and the only check whether a client may do that act.

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
    """The act that a client must be allowed to do, so that it may use a route.

    `act` is None if anybody may use the route. `objects` is a function that returns the objects,
    such as tables, that a request names.
    """

    act: Act | None
    objects: Objects


def needs(act: Act, objects: Objects = lambda _: ()) -> Callable[[_Route], _Route]:
    """Returns a decorator that marks a route with the act that each request needs.

    `objects` is a function that returns the objects, such as tables, that a request names. The
    client must be allowed to do the act on each of these objects. If the request names no object,
    the client must be allowed to do the act on at least one object.
    """

    def marked(route: _Route) -> _Route:
        setattr(route, _MARK, RouteNeed(act, objects))
        return route

    return marked


def open_to_all(route: _Route) -> _Route:
    """Marks a route as open: anybody may use the route."""
    setattr(route, _MARK, RouteNeed(None, lambda _: ()))
    return route


def need_of(route: object) -> RouteNeed | None:
    """Returns the act and the objects that a route is marked with, or None if it has no mark."""
    found: RouteNeed | None = getattr(route, _MARK, None)
    return found


def tables_in_path(connection: HTTPConnection) -> Iterable[str]:
    """Returns the table that the path of a request names, in the form that `may` accepts."""
    asked = connection.path_params
    if "table" in asked:
        return (asked["table"],)
    return (table_object(asked["pipeline"], asked["name"]),)


def rejects_asked(connection: HTTPConnection) -> Iterable[str]:
    """Returns the name of the rejects that a request reads, in the form that `may` accepts.

    If the request's query names a pipeline, these are the rejects of this pipeline. Otherwise, they
    are the rejects of all pipelines.
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
    """Returns the identity of the client that sent a request.

    The server has already checked the request.
    """
    found = identity_in(connection.scope)
    assert found is not None, "a route that needs an act has let the request in"
    return found
