"""Errors of a worker reach the user as they are."""

from __future__ import annotations

import traceback
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError
from pyspark.errors import PySparkException

from kappa.base.errors import Broken, KappaError, Unreachable
from kappa.engine.function.trouble import translated
from kappa.log.client import Log


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
            KappaError,
            "t partition 0 could not be read: .*authorization failed",
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
