"""Checks of compose.yaml against the public schema and itself, without a container engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

HERE = Path(__file__).parent
TREE = HERE.parent
BROKERS = ("kafka-1", "kafka-2", "kafka-3")
MASTER, WORKERS = "spark-master", ("spark-worker-1", "spark-worker-2")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return yaml.safe_load((TREE / "compose.yaml").read_text(encoding="utf-8"))


def test_it_is_of_the_compose_specification(compose):
    schema = json.loads((HERE / "data" / "compose-spec.json").read_text(encoding="utf-8"))

    assert [
        error.message for error in jsonschema.Draft201909Validator(schema).iter_errors(compose)
    ] == []


def test_the_schema_refuses_what_is_not(compose):
    schema = json.loads((HERE / "data" / "compose-spec.json").read_text(encoding="utf-8"))
    compose = {**compose, "services": {"kappa": {"imagine": "this"}}}

    assert list(jsonschema.Draft201909Validator(schema).iter_errors(compose))


def test_every_service_says_whether_it_is_well(compose):
    assert {
        name for name, service in compose["services"].items() if "healthcheck" not in service
    } == set()


def test_brokers_know_each_other_and_differ_in_what_they_must(compose):
    settings = [compose["services"][name]["environment"] for name in BROKERS]

    assert {each["CLUSTER_ID"] for each in settings} == {settings[0]["CLUSTER_ID"]}
    assert len({each["KAFKA_NODE_ID"] for each in settings}) == len(BROKERS)
    for name, each in zip(BROKERS, settings, strict=True):
        assert f"{each['KAFKA_NODE_ID']}@{name}:9093" in each["KAFKA_CONTROLLER_QUORUM_VOTERS"]
        assert each["KAFKA_ADVERTISED_LISTENERS"] == f"PLAINTEXT://{name}:9092"


def test_kappa_is_pointed_at_all_brokers_and_waits_for_them(compose):
    kappa = compose["services"]["kappa"]

    assert kappa["environment"]["KAPPA__KAFKA__BOOTSTRAP_SERVERS"].split(",") == [
        f"{name}:9092" for name in BROKERS
    ]
    assert set(kappa["depends_on"]) == {*BROKERS, MASTER}


def test_workers_are_those_of_the_master_that_kappa_names_and_see_its_root(compose):
    services = compose["services"]
    url = f"spark://{MASTER}:7077"
    (master,) = services[MASTER]["command"]

    kappa = services["kappa"]["environment"]
    assert (kappa["KAPPA__ENGINE__MASTER"], kappa["KAPPA__ENGINE__DRIVER_HOST"]) == (url, "kappa")
    assert f"--host {MASTER} --port 7077" in master
    for name in WORKERS:
        (worker,) = services[name]["command"]
        assert worker.endswith(url)
        assert services[name]["volumes"] == services[MASTER]["volumes"] == ["kappa:/var/lib/kappa"]
        assert services[name]["build"] == services["kappa"]["build"]


def test_the_project_is_mounted_for_the_image_has_none(compose):
    mounted = [volume.split(":") for volume in compose["services"]["kappa"]["volumes"]]
    ours = {at: source for source, at, *_ in mounted if at.startswith("/project/")}

    assert ours == {
        f"/project/{name}": f"./{name}" for name in ("kappa.toml", "pipelines", "boards")
    }
    assert all((TREE / source).exists() for source in ours.values())
    image = (TREE / "Dockerfile").read_text(encoding="utf-8")
    assert "COPY" not in image.partition("WORKDIR /project\n")[2]


def test_every_volume_that_is_used_is_declared(compose):
    used = {
        volume.partition(":")[0]
        for service in compose["services"].values()
        for volume in service["volumes"]
    }

    assert {name for name in used if not name.startswith(".")} == set(compose["volumes"])
