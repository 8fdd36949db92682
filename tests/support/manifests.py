"""The manifests of deploy/kubernetes as Kubernetes gets them, and the schema of Kubernetes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import yaml

TREE = Path(__file__).parents[2]
MANIFESTS = TREE / "deploy" / "kubernetes"
SETS = ("volume", "bucket", "spark")
KINDS = {
    "ConfigMap": "io.k8s.api.core.v1.ConfigMap",
    "NetworkPolicy": "io.k8s.api.networking.v1.NetworkPolicy",
    "PersistentVolumeClaim": "io.k8s.api.core.v1.PersistentVolumeClaim",
    "Pod": "io.k8s.api.core.v1.Pod",
    "Role": "io.k8s.api.rbac.v1.Role",
    "RoleBinding": "io.k8s.api.rbac.v1.RoleBinding",
    "Service": "io.k8s.api.core.v1.Service",
    "ServiceAccount": "io.k8s.api.core.v1.ServiceAccount",
    "StatefulSet": "io.k8s.api.apps.v1.StatefulSet",
}
# Of a pod, in a cluster.
FIELDS = {
    "metadata.name": "kappa-0",
    "metadata.namespace": "shop",
    "status.podIP": "10.0.0.7",
}
Manifests = dict[tuple[str, str], dict[str, Any]]


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def patched(given: Any, patch: Any) -> Any:
    """Merges a patch as Kubernetes does. The items of lists are matched by their names."""
    if isinstance(given, dict) and isinstance(patch, dict):
        both = {name: patched(given[name], patch[name]) for name in given.keys() & patch.keys()}
        return {**given, **patch, **both}
    if isinstance(given, list) and isinstance(patch, list):
        known = {each["name"]: each for each in given}
        new = [each for each in patch if each["name"] not in known]
        by_name = {each["name"]: each for each in patch}
        return [*new, *(patched(each, by_name.get(each["name"], {})) for each in given)]
    return patch


def built(folder: Path) -> Manifests:
    """Returns the manifests that `kubectl apply -k` sends."""
    (kustomization,) = documents(folder / "kustomization.yaml")
    found: Manifests = {}
    for name in kustomization["resources"]:
        if (folder / name).is_dir():
            found |= built((folder / name).resolve())
        else:
            for each in documents(folder / name):
                found[each["kind"], each["metadata"]["name"]] = each
    for patch in kustomization.get("patches", ()):
        (each,) = documents(folder / patch["path"])
        key = each["kind"], each["metadata"]["name"]
        found[key] = patched(found[key], each)
    return found


@cache
def _definitions() -> dict[str, Any]:
    file = TREE / "tests" / "data" / "kubernetes-1.37.json"
    return json.loads(file.read_text(encoding="utf-8"))


def errors(manifest: dict[str, Any]) -> list[str]:
    """Returns the errors of a manifest against the schema of Kubernetes."""
    schema = {**_definitions(), "$ref": f"#/$defs/{KINDS[manifest['kind']]}"}
    return [
        error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(manifest)
    ]


def pod_of(manifests: Manifests) -> dict[str, Any]:
    return manifests["StatefulSet", "kappa"]["spec"]["template"]["spec"]


def container_of(manifests: Manifests) -> dict[str, Any]:
    (container,) = pod_of(manifests)["containers"]
    return container


def executor_of(manifests: Manifests) -> dict[str, Any]:
    return yaml.safe_load(manifests["ConfigMap", "kappa-executor"]["data"]["executor.yaml"])


def environment(
    env: list[dict[str, Any]], fields: Mapping[str, str] = FIELDS
) -> Iterator[tuple[str, str]]:
    """Yields a container's variables with their values, as Kubernetes resolves them.

    A variable may name the variables before it.
    """
    before: dict[str, str] = {}
    for each in env:
        match each:
            case {"value": str(text)}:
                value = re.sub(r"\$\((\w+)\)", lambda found: before[found[1]], text)
            case {"valueFrom": {"fieldRef": {"fieldPath": path}}}:
                value = fields[path]
            case {"valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}:
                value = "2"
            case {"valueFrom": {"secretKeyRef": {"name": "kappa", "key": key}}}:
                value = f"a secret, {key}"
        before[each["name"]] = value
        yield each["name"], value
