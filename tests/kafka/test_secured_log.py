"""Clients of a secured cluster: some are admitted, and each other one gets a clear message."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from certificates import Authority
from identity_provider import CLIENT, CLIENT_SECRET
from secured import SecuredBroker

from kappa.base.errors import AccessRefused, AclMissing, KappaError
from kappa.declare.topic import Topic
from kappa.kafka import broker_requests
from kappa.kafka.client import Log
from kappa.kafka.producer import ProducedRecord

pytestmark = [pytest.mark.long, pytest.mark.jvm]

# Longer than pytest lets a test run: whoever waits for the end of its patience never gets there.
WITHOUT_END_SECONDS = 3_000.0
USER, PASSWORD = "reader", "reader-pw"
Rule = tuple[str, str, str]


@pytest.fixture(scope="module", autouse=True)
def _user(secured: SecuredBroker) -> None:
    secured.add_user(USER, PASSWORD)


@pytest.fixture(autouse=True)
def _rules(secured: SecuredBroker) -> Iterator[None]:
    """Removes the rules of the test's user afterwards."""
    yield
    secured.forbid(USER)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives clients unlimited patience, so that only an error that they notice ends a wait.

    Clients give the same reasons when their usual patience of 20 seconds ends. No duration is
    measured: a busy machine notices the error later, which is not a failure.
    """
    monkeypatch.setattr(broker_requests, "PATIENCE_SECONDS", WITHOUT_END_SECONDS)


@pytest.fixture
def topic(secured: SecuredBroker, topic_name: str) -> str:
    secured.log.create(Topic(topic_name, event="key string", key="key"))
    secured.log.produce([ProducedRecord(b'{"key": "a"}', key=b"a")], topic_name)
    return topic_name


def everything(topic: str) -> list[Rule]:
    return [
        ("topic", topic, "read"),
        ("topic", topic, "write"),
        ("topic", topic, "describe_configs"),
        ("group", "kappa-reads", "describe"),
        ("group", f"kappa-sink-{topic}", "read"),
        ("transactional-id", f"kappa-sink-{topic}", "write"),
    ]


def use(log: Log, topic: str) -> None:
    """Does everything that Kappa does with a topic."""
    assert log.config(topic)
    log.produce([ProducedRecord(b'{"key": "b"}', key=b"b")], topic)
    begin, end = log.beginning([topic]), log.end([topic])
    records = list(log.records([topic], begin, end))
    assert records
    columns = list(log.read_columns(topic, 0, begin.at(topic, 0), end.at(topic, 0)))
    assert sum(len(each.offsets) for each in columns) == len(records)
    with log.transactions(topic) as transactions:
        transactions.begin()
        assert transactions.send([(b"k", b"{}")], {}, "here") == 1


def use_until_refused(log: Log, topic: str) -> NoReturn:
    """Uses a topic repeatedly until it is refused, or until pytest's limit.

    A rule that was removed stays in force for a moment, and a read may end before its client has
    asked for its group.
    """
    while True:
        use(log, topic)


def certified(secured: SecuredBroker, name: str) -> dict[str, Any]:
    certificate, key = secured.authority.issue(name)
    return {
        "security.protocol": "SSL",
        "ssl.ca.location": str(secured.authority.ca),
        "ssl.certificate.location": str(certificate),
        "ssl.key.location": str(key),
    }


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_user_with_least_rules_does_all(secured: SecuredBroker, topic: str, mechanism: str) -> None:
    secured.allow(USER, everything(topic))

    use(Log(secured.at("sasl"), secured.options(USER, PASSWORD, mechanism)), topic)


def test_a_plain_user_does_all(secured: SecuredBroker, topic: str) -> None:
    secured.allow("plainuser", everything(topic))

    use(Log(secured.at("sasl"), secured.options("plainuser", "plain-pw", "PLAIN")), topic)


def test_a_certificate_does_all(secured: SecuredBroker, topic: str) -> None:
    secured.allow("machine", everything(topic))

    use(Log(secured.at("ssl"), certified(secured, "machine")), topic)


def test_a_token_does_all(secured: SecuredBroker, topic: str) -> None:
    secured.allow(CLIENT, everything(topic))

    use(Log(secured.at("sasl"), secured.token_options(CLIENT_SECRET)), topic)


@pytest.mark.parametrize("without", range(6))
def test_missing_rule_says_what_to_type(secured: SecuredBroker, topic: str, without: int) -> None:
    rules = everything(topic)
    kind, name, operation = rules.pop(without)
    spelled = "DescribeConfigs" if operation == "describe_configs" else operation.capitalize()
    secured.allow(USER, rules)
    log = Log(secured.at("sasl"), secured.options(USER, PASSWORD))

    with pytest.raises(AclMissing) as missed:
        use_until_refused(log, topic)
    refusal = f"the cluster at {secured.at('sasl')} does not allow User:{USER}"
    assert missed.value.message == f"{refusal} the operation {spelled} on {kind} {name}"
    rule = f"--allow-principal User:{USER} --operation {spelled} --{kind} {name}"
    assert rule in missed.value.hint


def test_topic_that_may_not_be_seen_or_made(secured: SecuredBroker, topic_name: str) -> None:
    """A topic without rights can be neither seen, created nor deleted."""
    log = Log(secured.at("sasl"), secured.options(USER, PASSWORD))

    for act, operation in (
        (lambda: log.facts(topic_name), "Describe"),
        (lambda: log.create(Topic(topic_name, event="key string", key="key")), "Create"),
        (lambda: log.delete(topic_name), "Delete"),
    ):
        with pytest.raises(AclMissing, match=f"{operation} on topic {topic_name}"):
            act()
    assert topic_name not in log.topics()


def refused(servers: str, options: dict[str, Any]) -> str:
    """Returns the error message of a client that is not admitted."""
    for ask in (lambda log: log.topics(), lambda log: log.facts("t")):
        with pytest.raises(AccessRefused) as error:
            ask(Log(servers, options))
    assert servers in error.value.message
    assert "secured-kafka.md" in error.value.hint
    assert "wrong-5ecret" not in str(error.value)
    return error.value.message


@pytest.mark.usefixtures("patient")
def test_a_wrong_password(secured: SecuredBroker) -> None:
    sentence = refused(secured.at("sasl"), secured.options(USER, "wrong-5ecret"))
    assert f"user {USER} is not let in: " in sentence
    assert "invalid credentials with SASL mechanism SCRAM-SHA-512" in sentence


@pytest.mark.usefixtures("patient")
def test_a_wrong_secret_for_tokens(secured: SecuredBroker) -> None:
    sentence = refused(secured.at("sasl"), secured.token_options("wrong-5ecret"))
    assert "the client is not let in: " in sentence


@pytest.mark.usefixtures("patient")
def test_an_authority_that_is_not_trusted(secured: SecuredBroker, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other").ca
    options = {**secured.options(USER, PASSWORD), "ssl.ca.location": str(other)}
    assert f"is of no authority in {other}" in refused(secured.at("sasl"), options)
    del options["ssl.ca.location"]
    assert "kafka.auth.ca" in refused(secured.at("sasl"), options)


@pytest.mark.usefixtures("patient")
def test_a_certificate_that_has_expired(secured: SecuredBroker) -> None:
    sentence = refused(secured.at("expired"), secured.options(USER, PASSWORD))
    assert f"the certificate of {secured.at('expired')} has expired" in sentence


@pytest.mark.usefixtures("patient")
def test_a_listener_of_another_protocol(secured: SecuredBroker) -> None:
    options = secured.options(USER, PASSWORD)
    assert "speaks TLS alone" in refused(secured.at("sasl"), {})
    assert "speaks TLS alone" in refused(
        secured.at("sasl"), {**options, "security.protocol": "SASL_PLAINTEXT"}
    )
    assert "speaks no TLS" in refused(secured.at("plain"), options)


@pytest.mark.usefixtures("patient")
def test_client_without_wanted_certificate(secured: SecuredBroker, tmp_path: Path) -> None:
    ca = {"security.protocol": "SSL", "ssl.ca.location": str(secured.authority.ca)}
    assert "wants a certificate of the client" in refused(secured.at("ssl"), ca)
    certificate, key = Authority(tmp_path / "other").issue("stranger")
    stranger = {"ssl.certificate.location": str(certificate), "ssl.key.location": str(key)}
    assert f"refuses the certificate {certificate}" in refused(secured.at("ssl"), ca | stranger)


def test_a_password_that_is_changed_meanwhile(secured: SecuredBroker, topic: str) -> None:
    secured.add_user("passing", "first")
    secured.allow("passing", everything(topic))
    log = Log(secured.at("sasl"), secured.options("passing", "first"))
    use(log, topic)
    secured.add_user("passing", "second")

    # What is connected stays so; a new client is not let in.
    assert log.end([topic])
    with pytest.raises(AccessRefused, match="user passing"):
        log.produce([ProducedRecord(b"{}")], topic)
    with pytest.raises(KappaError, match="user passing"):
        Log(secured.at("sasl"), secured.options("passing", "first")).end([topic])
