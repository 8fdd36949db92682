"""On a secured cluster, an archiver names the access rule that it lacks."""

from __future__ import annotations

from pathlib import Path

import pytest
from secured import SecuredBroker
from test_archive import a_project, an_archiver, visit

from kappa.base.errors import ExitCode
from kappa.declare.topic import Topic
from kappa.kafka.client import Log

pytestmark = pytest.mark.jvm

USER, PASSWORD = "archiver", "archiver-c4nary"


def test_a_rule_that_is_missing_is_named_and_no_secret(
    secured: SecuredBroker, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secured.add_user(USER, PASSWORD)
    monkeypatch.setenv("KAPPA__KAFKA__AUTH__PASSWORD", PASSWORD)
    topic = Topic(
        topic_name,
        event="visitor string not null, n int",
        partitions=2,
        key="visitor",
        archive=True,
    )
    secured.log.create(topic)
    secured.log.produce(map(visit, range(50)), topic_name)
    seen = [("topic", topic_name, each) for each in ("Describe", "DescribeConfigs")]
    secured.allow(USER, [*seen, ("group", "kappa-reads", "Describe")])
    project = a_project(tmp_path / "project", topic_name)
    (project / "kappa.toml").write_text(
        f'[kafka]\nbootstrap_servers = "{secured.at("sasl")}"\n'
        f'[kafka.auth]\nmechanism = "SCRAM-SHA-512"\nuser = "{USER}"\n'
        f'ca = "{secured.authority.ca}"\n'
    )
    log = Log(secured.at("sasl"), secured.options(USER, PASSWORD))
    try:
        ended = an_archiver(project, log).wait(120)

        said = (project / "said.log").read_text()
        assert ended == ExitCode.FAILED, said
        assert f"does not allow User:{USER} the operation Read on topic {topic_name}" in said
        assert PASSWORD not in said
    finally:
        secured.forbid(USER)
        secured.log.delete(topic_name)
