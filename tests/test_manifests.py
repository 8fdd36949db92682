"""Checks of deploy/kubernetes against the schema of Kubernetes, itself, and Kappa's settings.

There are three sets of manifests: a root on a volume, a root in a bucket, and a root in a bucket
with Spark. Each set names the set on which it builds, in kustomize's form.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from manifests import (
    FIELDS,
    MANIFESTS,
    SETS,
    TREE,
    Manifests,
    built,
    container_of,
    documents,
    environment,
    errors,
    executor_of,
    pod_of,
)

from kappa.base.settings import Settings, load_settings
from kappa.engine.spark.cluster import SparkCluster, cluster_of

# Spark tries so many ports after a taken one (spark.port.maxRetries).
RETRIES = 16


@pytest.fixture(params=SETS)
def manifests(request: pytest.FixtureRequest) -> Manifests:
    return built(MANIFESTS / request.param)


@pytest.fixture
def spark() -> Manifests:
    return built(MANIFESTS / "spark")


def settings_of(manifests: Manifests, folder: Path, monkeypatch) -> Settings:
    """Returns the settings of Kappa in the pod, with the environment that Kubernetes sets."""
    text = manifests["ConfigMap", "kappa"]["data"]["kappa.toml"]
    (folder / "kappa.toml").write_text(text, encoding="utf-8")
    for name, value in environment(container_of(manifests)["env"]):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("KAPPA__KAFKA__AUTH__MECHANISM", "SCRAM-SHA-512")
    monkeypatch.setenv("KAPPA__KAFKA__AUTH__USER", "kappa")
    return load_settings(folder)


def test_each_manifest_is_of_kubernetes_own_schema(manifests):
    assert {key: errors(manifest) for key, manifest in manifests.items()} == {
        key: [] for key in manifests
    }


def test_no_file_is_left_out_and_no_kind_is_of_another_version():
    for folder in (MANIFESTS / name for name in SETS):
        (kustomization,) = documents(folder / "kustomization.yaml")
        named = {each["path"] for each in kustomization.get("patches", ())}
        named |= {each for each in kustomization["resources"] if not each.startswith("..")}
        assert named | {"kustomization.yaml"} == {file.name for file in folder.iterdir()}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl")
@pytest.mark.parametrize("name", SETS)
def test_kubectl_builds_the_same(name):
    made = subprocess.run(
        ["kubectl", "kustomize", str(MANIFESTS / name)], capture_output=True, check=True
    )

    assert {
        (each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(made.stdout)
    } == built(MANIFESTS / name)


def test_kubernetes_schema_refuses_what_is_not(spark):
    service = {**spark["Service", "kappa"], "spec": {"porst": []}}
    role = {**spark["Role", "kappa"], "rules": [{"resources": ["pods"]}]}
    pod = pod_of(spark)
    wrong = {**container_of(spark), "livenessProbe": {"httpGet": {"path": "/healthz"}}}
    host = {**spark["StatefulSet", "kappa"]}
    host["spec"] = {**host["spec"], "template": {"spec": {**pod, "containers": [wrong]}}}
    executor = {**executor_of(spark), "spec": {}}

    assert all(errors(each) for each in (service, role, host, executor))


def test_the_control_host_is_one_and_has_what_it_refers_to(manifests):
    spec = manifests["StatefulSet", "kappa"]["spec"]
    pod, container = pod_of(manifests), container_of(manifests)

    assert spec["replicas"] == 1
    claim = manifests["PersistentVolumeClaim", "kappa"]["spec"]
    assert claim["accessModes"] == ["ReadWriteOncePod"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == labels
    assert manifests["Service", "kappa"]["spec"]["selector"] == labels
    assert manifests["NetworkPolicy", "kappa"]["spec"]["podSelector"]["matchLabels"] == labels
    assert {mount["name"] for mount in container["volumeMounts"]} == {
        volume["name"] for volume in pod["volumes"]
    }
    maps = {each["configMap"]["name"] for each in pod["volumes"] if "configMap" in each}
    assert maps == {name for kind, name in manifests if kind == "ConfigMap"}
    ports = {port["name"] for port in container["ports"]}
    probes = [container[f"{name}Probe"] for name in ("startup", "liveness", "readiness")]
    assert {probe["httpGet"]["port"] for probe in probes} <= ports
    service = manifests["Service", "kappa"]["spec"]
    assert {port["targetPort"] for port in service["ports"]} <= ports


def test_users_are_the_one_that_the_dockerfile_makes(spark):
    image = (TREE / "Dockerfile").read_text(encoding="utf-8")

    made = re.findall(r"useradd --uid (\d+) --user-group --create-home (\w+)", image)
    for pod in (pod_of(spark), executor_of(spark)["spec"]):
        security = pod["securityContext"]
        assert made == [(str(security["runAsUser"]), *re.findall(r"(?m)^USER (\w+)$", image))]
        assert security["runAsGroup"] == security["fsGroup"] == security["runAsUser"]


def test_its_settings_are_kappas_and_its_secrets_are_no_settings(manifests, tmp_path, monkeypatch):
    settings = settings_of(manifests, tmp_path, monkeypatch)

    container = container_of(manifests)
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    in_bucket = settings.root == "s3://our-bucket/kappa"
    assert (settings.local if in_bucket else settings.root).startswith(f"{mounted['root']}/")
    (port,) = container["ports"]
    assert settings.serve.listen == f"0.0.0.0:{port['containerPort']}"
    assert settings.engine.cores == 2
    text = manifests["ConfigMap", "kappa"]["data"]["kappa.toml"]
    assert not re.search("password|token|secret", "".join(flat(tomllib.loads(text))))
    env = {each["name"]: each for each in container["env"]}
    assert ("AWS_SECRET_ACCESS_KEY" in env) == in_bucket
    secret = [each for name, each in env.items() if re.search("TOKEN|PASSWORD|AWS", name)]
    assert all("secretKeyRef" in each["valueFrom"] for each in secret)


def flat(section: Mapping[str, Any]) -> list[str]:
    """Returns the names of all settings, including nested ones."""
    return [
        name
        for key, value in section.items()
        for name in (key, *(flat(value) if isinstance(value, dict) else ()))
    ]


def cluster(spark: Manifests, folder: Path, monkeypatch) -> SparkCluster:
    found = cluster_of(settings_of(spark, folder, monkeypatch))
    assert found is not None
    return found


def test_executors_are_the_control_hosts_own_image_and_pods(spark, tmp_path, monkeypatch):
    found = cluster(spark, tmp_path, monkeypatch)

    container, executor = container_of(spark), executor_of(spark)
    assert found.driver_host == FIELDS["status.podIP"]
    assert found.conf["spark.kubernetes.container.image"] == container["image"]
    assert found.conf["spark.kubernetes.namespace"] == FIELDS["metadata.namespace"]
    assert found.conf["spark.kubernetes.driver.pod.name"] == FIELDS["metadata.name"]
    # Its Python workers have memory in a pod, too.
    assert found.settings("1g", ())["spark.kubernetes.resource.type"] == "python"
    at = Path(found.conf["spark.kubernetes.executor.podTemplateFile"])
    assert errors(executor) == []
    mounted = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    (volume,) = [
        each for each in pod_of(spark)["volumes"] if each["name"] == mounted[str(at.parent)]
    ]
    assert at.name in spark["ConfigMap", volume["configMap"]["name"]]["data"]
    (own,) = executor["spec"]["containers"]
    assert all(each in container["env"] for each in own["env"])
    assert {each["name"] for each in own["env"]} == {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}


def test_only_the_control_host_of_spark_may_ask_kubernetes(manifests):
    pod = pod_of(manifests)
    assert pod["automountServiceAccountToken"] == (("Role", "kappa") in manifests)
    if pod["automountServiceAccountToken"]:
        (rule,) = manifests["Role", "kappa"]["rules"]
        # No volume, and no secret.
        assert set(rule["resources"]) == {"pods", "configmaps"}
        binding = manifests["RoleBinding", "kappa"]
        assert binding["roleRef"]["name"] == "kappa"
        assert [each["name"] for each in binding["subjects"]] == [pod["serviceAccountName"]]
        assert ("ServiceAccount", pod["serviceAccountName"]) in manifests
        assert not executor_of(manifests)["spec"]["automountServiceAccountToken"]


def ports_to(
    manifests: Manifests, labels: Mapping[str, str], source: Mapping[str, str]
) -> set[int]:
    """Returns the ports on which pods of one kind accept connections from pods of another.

    Both sides must allow the connection.
    """

    def allowed(pods: Mapping[str, str], way: str, others: Mapping[str, str]) -> set[int]:
        return {
            number
            for (kind, _), policy in manifests.items()
            if kind == "NetworkPolicy" and policy["spec"]["podSelector"]["matchLabels"] == pods
            for rule in policy["spec"].get("ingress" if way == "from" else "egress", ())
            if way not in rule
            or others in [each["podSelector"]["matchLabels"] for each in rule[way]]
            for port in rule["ports"]
            if isinstance(port["port"], int)
            for number in range(port["port"], port.get("endPort", port["port"]) + 1)
        }

    return allowed(labels, "from", source) & allowed(source, "to", labels)


def test_drivers_and_executors_reach_each_other(spark, tmp_path, monkeypatch):
    found = cluster(spark, tmp_path, monkeypatch)
    host = spark["StatefulSet", "kappa"]["spec"]["template"]["metadata"]["labels"]
    executor = executor_of(spark)["metadata"]["labels"]
    driver, blocks = (int(found.conf[f"spark.{name}.port"]) for name in ("driver", "blockManager"))

    assert driver + RETRIES < blocks
    to_host = ports_to(spark, host, executor)
    assert {*range(driver, driver + RETRIES + 1), *range(blocks, blocks + RETRIES + 1)} <= to_host
    assert ports_to(spark, executor, host) == ports_to(spark, executor, executor) == {blocks}
