"""Spark with the manifests' settings, on a stand-in for Kubernetes, by the image's entry point."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from kubernetes_server import running_kubernetes
from manifests import MANIFESTS, built, container_of, environment, errors, executor_of

# Two executors of a JVM and Python's workers begin.
pytestmark = [pytest.mark.jvm, pytest.mark.sweep]

_SESSION = """
import os
import sys
from pathlib import Path

from kappa.base.settings import load_settings
from kappa.code.importer import FOLDER_VARIABLE
from kappa.engine.spark.jvm import Profile
from kappa.engine.spark.session import boot_for

folder = Path(sys.argv[1])
os.environ[FOLDER_VARIABLE] = str(folder)
(folder / "job" / "tmp").mkdir(parents=True)
machine = boot_for(
    load_settings(folder),
    profile=Profile.CATCH_UP,
    name="Totals of shops, build 3",
    local_dir=folder / "job",
)
spark = machine.session()
print(spark.range(0, 10_000, 1, 4).selectExpr("id % 7 k").groupBy("k").count().count())
print(spark.sparkContext.parallelize(range(10), 2).map(lambda x: x + 1).sum())
machine.end()
"""


def test_executors_fold_and_the_role_allows_all_that_spark_asks(tmp_path):
    manifests = built(MANIFESTS / "spark")
    (tmp_path / "kappa.toml").write_text(manifests["ConfigMap", "kappa"]["data"]["kappa.toml"])
    pod = tmp_path / "executor.yaml"
    pod.write_text(manifests["ConfigMap", "kappa-executor"]["data"]["executor.yaml"])
    given = dict(environment(container_of(manifests)["env"]))
    conf = {
        **json.loads(given["KAPPA__ENGINE__CONF"]),
        "spark.kubernetes.executor.podTemplateFile": str(pod),
        "spark.kubernetes.executor.apiPollingInterval": "2s",
        "spark.executor.instances": "2",
        "spark.executor.memory": "512m",
    }

    with running_kubernetes(tmp_path) as (kubernetes, url):
        printed = subprocess.run(
            [sys.executable, "-c", _SESSION, str(tmp_path)],
            env={
                **os.environ,
                **{name: value for name, value in given.items() if name.startswith("AWS_")},
                "KAPPA__ENGINE__CONF": json.dumps(conf),
                "KAPPA__ENGINE__DRIVER_HOST": "127.0.0.1",
                "KAPPA__ENGINE__MASTER": f"k8s://{url}",
                "KAPPA__ENGINE__WORKER_MEMORY": "1g",
                "KAPPA__LOCAL": str(tmp_path / "local"),
            },
            check=False,
            capture_output=True,
            text=True,
        )

    logs = "\n".join(file.read_text()[-2000:] for file in tmp_path.glob("*.log"))
    assert printed.stdout.split() == ["7", "55"], printed.stderr[-4000:] + logs
    (rule,) = manifests["Role", "kappa"]["rules"]
    allowed = {(each, verb) for each in rule["resources"] for verb in rule["verbs"]}
    assert kubernetes.asked <= allowed
    assert len(kubernetes.created) >= 2
    for created in kubernetes.created:
        assert_is_as_the_manifests_have_it(created, manifests)


def assert_is_as_the_manifests_have_it(created, manifests):
    template = executor_of(manifests)
    (container,) = created["spec"]["containers"]

    assert errors({name: each for name, each in created.items() if name != "status"}) == []
    assert container["image"] == container_of(manifests)["image"]
    # The JVM's 512 and 384 besides, and what Python's workers may take.
    assert container["resources"]["limits"]["memory"] == f"{512 + 384 + 1024}Mi"
    assert template["metadata"]["labels"].items() <= created["metadata"]["labels"].items()
    assert created["spec"]["securityContext"] == template["spec"]["securityContext"]
    assert not created["spec"]["automountServiceAccountToken"]
    (owner,) = created["metadata"]["ownerReferences"]
    assert owner["name"] == "kappa-0"
