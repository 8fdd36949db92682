"""The tail's stream on a secured cluster, which Spark reads with Kafka's Java client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from house import HOUSE
from identity_provider import CLIENT, CLIENT_SECRET
from secured import SecuredBroker

from kappa.declare.topic import Topic
from kappa.kafka.producer import ProducedRecord

pytestmark = [pytest.mark.long, pytest.mark.jvm, pytest.mark.timeout(400)]


def test_spark_reads_by_a_certificate_and_by_a_token_and_shows_no_secret(
    secured: SecuredBroker, topic_name: str, tmp_path: Path
) -> None:
    secured.log.create(Topic(topic_name, event="key string", key="key"))
    secured.log.produce([ProducedRecord(b"{}")] * 7, topic_name)
    for user in ("spark-machine", CLIENT):
        # Spark asks for no group.
        secured.allow(user, [("topic", topic_name, "Read")])
    certificate, key = secured.authority.issue("spark-machine")
    ca = {"ssl.ca.location": str(secured.authority.ca)}
    own = {"ssl.certificate.location": str(certificate), "ssl.key.location": str(key)}
    accesses = [
        (secured.at("ssl"), {"security.protocol": "SSL", **ca, **own}),
        (secured.at("sasl"), secured.token_options(CLIENT_SECRET)),
    ]

    done = subprocess.run(
        [sys.executable, "-P", str(HOUSE / "tests" / "support" / "tail_once.py"), str(tmp_path)],
        input=json.dumps({"topic": topic_name, "accesses": accesses}),
        env={**os.environ, "PYTHONPATH": str(HOUSE)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == [7, 7]
    secrets = [CLIENT_SECRET, key.read_text(encoding="ascii").splitlines()[5]]
    assert [each for each in secrets if each in done.stdout + done.stderr] == []
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert [each for each in secrets for text in written if each.encode() in text] == []
