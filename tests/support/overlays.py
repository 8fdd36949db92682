"""Versions of one pipeline that differ in code, views and checks, with the parts of each."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from plans import birth

from kappa import Alert, Sink, Table, Topic, View, count, pipeline
from kappa.code.fingerprint import compute_fingerprint, declaration_lines
from kappa.code.sources import SourceFile
from kappa.declare.values.columns import parse_columns
from kappa.replay.rollout.plan.facts import Declared
from kappa.state.build import Birth
from kappa.tables.shape import table_births

ORDERS = Topic("orders", event="id string, n int", partitions=2, key="id")
_PATH = "pipelines/flights.py"
_CODE = 'def flights(orders):\n    return {{"delays": orders.where("n > {least}")}}\n'


def declared(
    *,
    least: int = 0,
    keys: tuple[str, ...] = ("id",),
    views: dict[str, str] | None = None,
    checks: tuple[str, ...] = (),
    max_changed: float | None = None,
    outlets: tuple[Sink | Alert, ...] = (),
) -> Declared:
    """Returns a pipeline whose function keeps orders of more than `least`."""

    def flights(orders: Any) -> dict[str, Any]:
        return {"delays": orders}

    code = _CODE.format(least=least).encode()
    made = pipeline(
        reads={"orders": ORDERS},
        writes=[
            Table(
                "delays", keys=keys, fold={"rows": count()}, checks=checks, max_changed=max_changed
            ),
            *(View(name, sql) for name, sql in (views or {}).items()),
            *outlets,
        ],
    )(flights)

    def find(module: str) -> SourceFile | None:
        return SourceFile(module, _PATH, code) if module == "pipelines.flights" else None

    found = compute_fingerprint(made, "pipelines.flights", "flights", find)
    returned = parse_columns("id string, n int")
    return Declared(
        made,
        "pipelines.flights",
        found.version,
        found.parts,
        table_births(made, {"delays": {column.name: column.type for column in returned}}),
        {_PATH: code},
    )


def born(build: str, of: Declared) -> Birth:
    """Returns the birth certificate of a build of this declaration."""
    return replace(
        birth(build, of),
        declarations=declaration_lines(of.pipeline),
        views={view.name: view.sql for view in of.pipeline.views},
        sinks=tuple(sink.outlet_birth for sink in of.pipeline.sinks),
        alerts=tuple(alert.outlet_birth for alert in of.pipeline.alerts),
        origin={"orders": {"0": 0, "1": 0}},
        libraries={"pyspark": "4.2.0"},
    )
