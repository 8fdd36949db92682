"""Checks of compose.yaml against the public schema and itself, without a container engine."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from demo.cluster.answering import answers
from demo.cluster.object_store import VERSION, NotRunError, ensure_versitygw
from kappa.base.process import start_tied
from kappa.base.settings import load_settings
from kappa.kafka.broker.broker import free_ports
from kappa.state.store import open_store

HERE = Path(__file__).parent
TREE = HERE.parent
JARS = TREE / "kappa" / "base" / "java" / "jars.lock"
BROKERS = ("kafka-1", "kafka-2", "kafka-3")
MASTER, WORKERS = "spark-master", ("spark-worker-1", "spark-worker-2")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return yaml.safe_load((TREE / "compose.yaml").read_text(encoding="utf-8"))


def test_brokers_are_of_the_pinned_kafka(compose):
    """The brokers have the same version as the embedded broker and the clients in the tests."""
    pinned = re.findall(r"org\.apache\.kafka:kafka_[\d.]+:(\S+)", JARS.read_text(encoding="utf-8"))

    images = {each: compose["services"][each]["image"] for each in BROKERS}
    assert images == dict.fromkeys(BROKERS, f"apache/kafka:{pinned[0]}")


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
    assert set(kappa["depends_on"]) == {*BROKERS, MASTER, "s3"}


def test_no_credential_has_a_default_and_who_asks_the_bucket_has_them(compose):
    named = {
        name: {
            variable: value
            for variable, value in service["environment"].items()
            if re.search("KEY|SECRET|PASSWORD|TOKEN", variable)
        }
        for name, service in compose["services"].items()
    }

    assert all(
        re.fullmatch(r"\$\{AWS_\w+(:\?[^}]+)?\}", value)
        for each in named.values()
        for value in each.values()
    )
    for name in ("kappa", *WORKERS):
        assert set(named.pop(name)) == {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
    assert set(named.pop("s3")) == {"ROOT_ACCESS_KEY", "ROOT_SECRET_KEY"}
    assert not any(named.values())
    for ignored in (".gitignore", ".dockerignore"):
        assert ".env" in (TREE / ignored).read_text(encoding="utf-8").splitlines()


def test_the_s3_server_is_the_one_that_all_else_is_tested_with(compose):
    assert compose["services"]["s3"]["image"] == f"ghcr.io/versity/versitygw:v{VERSION}"


@pytest.fixture
def served(compose, tmp_path, monkeypatch) -> Iterator[int]:
    """Yields the port of an S3 server that is started as in compose, in folders of this test."""
    try:
        program = ensure_versitygw()
    except NotRunError as error:
        pytest.skip(f"not run: {error}")
    service = compose["services"]["s3"]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "kappa")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "6b" * 32)
    for name, value in service["environment"].items():
        monkeypatch.setenv(name, os.environ[value.strip("${}")])
    (volume,) = service["volumes"]
    _, at = volume.split(":")
    (tmp_path / at.strip("/")).mkdir(parents=True)
    port = free_ports(None)[0]
    replaced = {":7070": f"127.0.0.1:{port}", "/data": f"{tmp_path}/data"}
    command = [replaced.get(each, each) for each in service["command"]]
    assert set(replaced) <= set(service["command"])
    with (tmp_path / "log").open("wb") as log:
        process = start_tied([str(program), *command], output=log)
    *_, health = service["healthcheck"]["test"]
    assert health.startswith("http://127.0.0.1:7070/")
    deadline = time.monotonic() + 60
    while not answers(port, health.removeprefix("http://127.0.0.1:7070")):
        assert process.poll() is None, (tmp_path / "log").read_text()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    yield port
    process.kill()
    process.wait()


def test_kappas_root_is_in_the_bucket_that_the_volume_is(compose, served, tmp_path, monkeypatch):
    """The settings name the server, whose volume is the bucket, so nobody has to create it."""
    (tmp_path / "kappa.toml").touch()
    for name, value in compose["services"]["kappa"]["environment"].items():
        if name.startswith("KAPPA__"):
            monkeypatch.setenv(name, value)
    settings = load_settings(tmp_path)
    assert settings.storage.endpoint == "http://s3:7070"
    assert settings.local == "/var/lib/kappa/local"
    assert "kappa:/var/lib/kappa" in compose["services"]["kappa"]["volumes"]
    monkeypatch.setenv("KAPPA__STORAGE__ENDPOINT", f"http://127.0.0.1:{served}")
    monkeypatch.setenv("KAPPA__LOCAL", str(tmp_path / "local"))

    store = open_store(load_settings(tmp_path))
    store.control.take(over=False)
    store.put("builds/x", b"y")

    assert (tmp_path / "data" / "kappa" / "root" / "builds" / "x").read_bytes() == b"y"


def test_workers_are_those_of_the_master_that_kappa_names_and_have_its_code(compose):
    services = compose["services"]
    url = f"spark://{MASTER}:7077"
    (master,) = services[MASTER]["command"]

    kappa = services["kappa"]["environment"]
    assert (kappa["KAPPA__ENGINE__MASTER"], kappa["KAPPA__ENGINE__DRIVER_HOST"]) == (url, "kappa")
    assert f"--host {MASTER} --port 7077" in master
    for name in WORKERS:
        (worker,) = services[name]["command"]
        assert worker.endswith(url)
        assert "volumes" not in services[name]
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
        for volume in service.get("volumes", ())
    }

    assert {name for name in used if not name.startswith(".")} == set(compose["volumes"])
