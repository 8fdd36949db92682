"""Errors of a worker reach the user unchanged."""

from __future__ import annotations

import traceback
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from kappa.base.errors import AccessRefused, AclMissing, Broken, KappaError, Unreachable
from kappa.engine.function.spark_errors import translated
from kappa.kafka.client import Log


def told_by_worker(error: BaseException) -> PySparkException:
    return PySparkException(
        message="\n  An exception was thrown from the Python worker."
        " Please see the stack trace below.\n" + "".join(traceback.format_exception(error))
    )


def of_broker(code: int) -> Any:
    error = KafkaError(code)
    return SimpleNamespace(
        error=lambda: error, topic=lambda: "t", partition=lambda: 0, offset=lambda: 3
    )


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        (
            KafkaError._AUTO_OFFSET_RESET,
            Broken,
            "the log no longer has what was to be read of t partition 0",
        ),
        (KafkaError._ALL_BROKERS_DOWN, Unreachable, "no Kafka broker answers at localhost:1"),
        (
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            AclMissing,
            "localhost:1 does not allow this client the operation Read on topic t",
        ),
    ],
)
def test_what_the_reader_says_in_a_worker_is_said_by_the_job(
    code: int, kind: type[KappaError], message: str
) -> None:
    with Log("localhost:1").reader() as reader, pytest.raises(KappaError, match=message) as raised:
        reader._reached(of_broker(code))

    pipeline: Any = SimpleNamespace(name="p", source="/x/p.py")
    told = translated(told_by_worker(raised.value), pipeline)

    assert (type(told), told.message, told.hint) == (kind, raised.value.message, raised.value.hint)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("errors.TopicAuthorizationException: Not authorized to access topics: [t]", AclMissing),
        ("errors.SaslAuthenticationException: invalid credentials", AccessRefused),
        ("errors.SslAuthenticationException: SSL handshake failed", AccessRefused),
    ],
)
def test_what_sparks_own_client_is_refused_is_told(text: str, kind: type[KappaError]) -> None:
    pipeline: Any = SimpleNamespace(name="p", source="/x/p.py")
    error = Py4JError(f"An error occurred while calling o1.x.\n: org.apache.kafka.common.{text}")

    told = translated(error, pipeline)

    assert (type(told), text.partition(": ")[2] in told.message) == (kind, True)
