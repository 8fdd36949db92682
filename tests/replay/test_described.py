"""Laws of the API's description: what it says may be sent is answered, and never by an error of the server's own.

Schemathesis makes requests of the description, right ones and wrong ones; the platform is one made by hand, without a broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from asking import Server
from hypothesis import HealthCheck, Phase, given, settings
from page_world import World

from replay import api
from replay.page import routes
from serving import events
from serving.problem import MEDIA_TYPE
from serving.sandbox import Allowance

schemathesis = pytest.importorskip("schemathesis")
pytestmark = pytest.mark.slow
# What it tells never ends: its own tests listen to it.
ENDLESS = "/api/v1/events"
PATHS = (
    *("/healthz", "/readyz", "/metrics", "/api/v1/query", "/api/v1/snapshots/{snapshot}", "/api/v1/builds", "/api/v1/pipelines", "/api/v1/rollouts", "/api/v1/history"),
    *("/api/v1/tables", "/api/v1/topics", "/api/v1/rejects"),
)
OPENAPI = pytest.importorskip("schemathesis.specs.openapi.checks")
CHECKS = [pytest.importorskip("schemathesis.checks").not_a_server_error, OPENAPI.content_type_conformance, OPENAPI.response_schema_conformance]


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    world = World(tmp_path_factory.mktemp("world"))
    world.lives()
    world.be_up()
    with Server(world.store, Allowance(at_once=2, seconds=5), router=api.router, more=(events.router, *routes.ROUTERS), desk=world.desk) as server:
        yield schemathesis.openapi.from_url(f"http://127.0.0.1:{server.port}/api/v1/openapi.json")


def test_every_address_that_is_described_is_tried(schema: Any) -> None:
    assert set(schema) == {*PATHS, ENDLESS}


@pytest.mark.parametrize("path", PATHS)
def test_what_is_described_is_answered_and_what_is_wrong_is_a_problem(schema: Any, path: str) -> None:
    for method in schema[path]:

        @given(case=schema[path][method].as_strategy())
        @settings(max_examples=25, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck), derandomize=True)
        def answered(case: Any) -> None:
            response = case.call(timeout=30)
            case.validate_response(response, checks=CHECKS)
            if response.status_code >= 400:
                assert response.headers["content-type"][0].startswith(MEDIA_TYPE)

        answered()
