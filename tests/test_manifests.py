"""Checks of deploy/ against the rules of Kubernetes and systemd, and Kappa's settings."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from kappa.base.settings import load_settings

HERE = Path(__file__).parent
DEPLOY = HERE.parent / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
KINDS = {
    "ConfigMap": "io.k8s.api.core.v1.ConfigMap",
    "NetworkPolicy": "io.k8s.api.networking.v1.NetworkPolicy",
    "PersistentVolumeClaim": "io.k8s.api.core.v1.PersistentVolumeClaim",
    "Service": "io.k8s.api.core.v1.Service",
    "StatefulSet": "io.k8s.api.apps.v1.StatefulSet",
}


@pytest.fixture(scope="module")
def definitions() -> dict[str, Any]:
    return json.loads((HERE / "data" / "kubernetes-1.37.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def manifests() -> dict[str, Any]:
    found = {}
    for path in MANIFESTS:
        manifest = yaml.safe_load(path.read_text(encoding="utf-8"))
        found[manifest["kind"]] = manifest
    assert len(found) == len(MANIFESTS)
    return found


def errors(definitions: dict[str, Any], manifest: dict[str, Any]) -> list[str]:
    schema = {**definitions, "$ref": f"#/$defs/{KINDS[manifest['kind']]}"}
    return [
        error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(manifest)
    ]


def test_each_manifest_is_of_kubernetes_own_schema(definitions, manifests):
    assert set(manifests) == set(KINDS)
    assert {kind: errors(definitions, manifest) for kind, manifest in manifests.items()} == {
        kind: [] for kind in KINDS
    }
    assert all(manifest["metadata"]["name"] == "kappa" for manifest in manifests.values())


def test_kubernetes_schema_refuses_what_is_not(definitions, manifests):
    service = {**manifests["Service"], "spec": {"porst": []}}
    pod = manifests["StatefulSet"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    wrong = {**container, "livenessProbe": {"httpGet": {"path": "/healthz"}}}
    host = {**manifests["StatefulSet"]}
    host["spec"] = {**host["spec"], "template": {"spec": {**pod, "containers": [wrong]}}}

    assert errors(definitions, service)
    assert errors(definitions, host)


def test_the_control_host_is_one_and_has_what_it_refers_to(manifests):
    spec = manifests["StatefulSet"]["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]

    assert spec["replicas"] == 1
    assert manifests["PersistentVolumeClaim"]["spec"]["accessModes"] == ["ReadWriteOncePod"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == labels
    assert manifests["Service"]["spec"]["selector"] == labels
    assert manifests["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
    assert {mount["name"] for mount in container["volumeMounts"]} == {
        volume["name"] for volume in pod["volumes"]
    }
    ports = {port["name"] for port in container["ports"]}
    probes = [container[f"{name}Probe"] for name in ("startup", "liveness", "readiness")]
    assert {probe["httpGet"]["port"] for probe in probes} <= ports
    assert {port["targetPort"] for port in manifests["Service"]["spec"]["ports"]} <= ports


def test_its_user_is_the_one_that_the_dockerfile_makes(manifests):
    image = (HERE.parent / "Dockerfile").read_text(encoding="utf-8")
    security = manifests["StatefulSet"]["spec"]["template"]["spec"]["securityContext"]

    made = re.findall(r"useradd --uid (\d+) --user-group --create-home (\w+)", image)
    assert made == [(str(security["runAsUser"]), *re.findall(r"(?m)^USER (\w+)$", image))]
    assert security["runAsGroup"] == security["fsGroup"] == security["runAsUser"]


def test_its_settings_are_kappas_and_its_secrets_are_no_settings(manifests, tmp_path, monkeypatch):
    text = manifests["ConfigMap"]["data"]["kappa.toml"]
    (tmp_path / "kappa.toml").write_text(text, encoding="utf-8")
    (container,) = manifests["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    named = {each["name"]: each for each in container["env"]}
    for name in named:
        if name.startswith("KAPPA__"):
            monkeypatch.setenv(name, "2" if name.endswith("CORES") else "a secret of some length")
    monkeypatch.setenv("KAPPA__KAFKA__AUTH__MECHANISM", "SCRAM-SHA-512")
    monkeypatch.setenv("KAPPA__KAFKA__AUTH__USER", "kappa")

    settings = load_settings(tmp_path)

    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert settings.root_url == f"{mounted['root']}/root"
    (port,) = container["ports"]
    assert settings.serve.listen == f"0.0.0.0:{port['containerPort']}"
    assert settings.engine.cores == 2
    assert not re.search("password|token|secret", "".join(map(str, flat(tomllib.loads(text)))))
    assert all("value" not in each for name, each in named.items() if name.startswith("KAPPA__"))


def flat(section: dict[str, Any]) -> list[str]:
    """Lists the names of all settings."""
    return [
        name
        for key, value in section.items()
        for name in (key, *(flat(value) if isinstance(value, dict) else ()))
    ]


def verified(text: str, copy: Path) -> str:
    """Returns what systemd finds wrong in a unit, whose program need not be on this machine."""
    copy.write_text(re.sub(r"(?m)^ExecStart=\S+", "ExecStart=/bin/true", text), encoding="utf-8")
    found = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)],
        capture_output=True,
        text=True,
        check=False,
    )
    # Units of the machine itself are none of ours.
    return "".join(line for line in found.stderr.splitlines() if copy.name in line)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_takes_each_unit_and_no_word_that_it_does_not_know(unit, tmp_path):
    text = unit.read_text(encoding="utf-8")

    assert verified(text, tmp_path / unit.name) == ""
    assert "Unknown key" in verified(text.replace("Restart=", "Restrat="), tmp_path / unit.name)


def test_units_call_kappa_with_what_it_knows():
    calls = {
        unit.name: re.findall(r"(?m)^ExecStart=\S+/kappa (.*)$", unit.read_text(encoding="utf-8"))
        for unit in UNITS
    }

    assert calls == {
        "kappa.service": ["up"],
        "kappa-serve.service": ["serve --listen 127.0.0.1:8718"],
    }
