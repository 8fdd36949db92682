"""Laws of the API's description: every request it allows is answered as described.

No answer is an internal error of the server. Schemathesis makes requests from the description,
right ones and wrong ones. The platform is made by hand, without a broker. It has a token, so that
the description of access is tested too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from asking import Server
from hypothesis import HealthCheck, Phase, given, settings
from page_world import World

from kappa.replay.page import api, routes
from kappa.serving.http import events
from kappa.serving.http.bounds import Bounds
from kappa.serving.http.problem import MEDIA_TYPE
from kappa.serving.http.request_checks import OPEN
from kappa.serving.query.sandbox.question import Allowance

requests = pytest.importorskip("requests")
schemathesis = pytest.importorskip("schemathesis")
pytestmark = pytest.mark.slow
KNOWN = {"Authorization": "Bearer s3cret"}
# This stream never ends, and Schemathesis waits for the end of an answer: only its beginning is
# read.
ENDLESS = "/api/v1/events"
PATHS = (
    *("/healthz", "/readyz", "/metrics", "/api/v1/query", "/api/v1/snapshots/{snapshot}"),
    *("/api/v1/builds", "/api/v1/pipelines", "/api/v1/rollouts", "/api/v1/rollouts/{number}"),
    *("/api/v1/tables", "/api/v1/topics", "/api/v1/sinks", "/api/v1/alerts", "/api/v1/rejects"),
    *("/api/v1/rejects/redrive", "/api/v1/alerts/retry", "/api/v1/history"),
)
OPENAPI = pytest.importorskip("schemathesis.specs.openapi.checks")
CHECKS = [
    pytest.importorskip("schemathesis.checks").not_a_server_error,
    OPENAPI.status_code_conformance,
    OPENAPI.content_type_conformance,
    OPENAPI.response_headers_conformance,
    OPENAPI.response_schema_conformance,
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    world = World(tmp_path_factory.mktemp("world"))
    world.lives()
    world.be_up()
    # Wrong tokens are tried too.
    access = {"token": "s3cret", "bounds": Bounds(wrong_seconds=0.01)}
    routers = {"router": api.router, "more": (events.router, *routes.ROUTERS)}
    allowance = Allowance(at_once=2, seconds=5)
    with Server(world.store, allowance, desk=world.desk, **access, **routers) as server:
        yield server


@pytest.fixture(scope="module")
def schema(server: Server) -> Any:
    url = f"http://127.0.0.1:{server.port}/api/v1/openapi.json"
    return schemathesis.openapi.from_url(url, headers=KNOWN)


def tried(operation: Any, law: Callable[[Any], None]) -> None:
    """Tests a law with some requests that Schemathesis makes for an operation."""

    how = {"max_examples": 25, "deadline": None, "derandomize": True, "phases": [Phase.generate]}
    how["suppress_health_check"] = list(HealthCheck)

    @given(case=operation.as_strategy())
    @settings(**how)
    def held(case: Any) -> None:
        law(case)

    held()


def test_every_address_that_is_described_is_tried(schema: Any) -> None:
    assert set(schema) == {*PATHS, ENDLESS}


@pytest.mark.parametrize("path", PATHS)
def test_described_is_answered_and_wrong_is_a_problem(schema: Any, path: str) -> None:
    def answered(case: Any) -> None:
        response = case.call(timeout=30, headers=KNOWN)
        case.validate_response(response, checks=CHECKS)
        if response.status_code >= 400:
            assert response.headers["content-type"][0].startswith(MEDIA_TYPE)

    for method in schema[path]:
        tried(schema[path][method], answered)


def test_a_stream_of_events_begins_or_is_a_problem(schema: Any) -> None:
    begun = set()

    def begins(case: Any) -> None:
        case.headers.update(KNOWN)
        with requests.request(**case.as_transport_kwargs(), stream=True, timeout=30) as response:
            begun.add(response.status_code)
            kind = response.headers["content-type"]
            if response.status_code == 200:
                assert kind.startswith("text/event-stream")
                assert next(response.iter_lines()) == b"retry: 2000"
            else:
                assert 400 <= response.status_code < 500
                assert kind == MEDIA_TYPE
                assert response.json()["hint"]

    tried(schema[ENDLESS]["GET"], begins)
    assert begun >= {200, 400}


@pytest.mark.parametrize("path", [*PATHS, ENDLESS])
def test_only_who_is_described_comes_in(schema: Any, server: Server, path: str) -> None:
    described = schema.raw_schema
    assert described["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    for method in schema[path]:
        wanted = described["paths"][path][method.lower()].get("security", described["security"])

        assert wanted == ([] if path in OPEN else [{"token": []}])
        assert (server.ask(method.upper(), path).status == 401) == bool(wanted)
