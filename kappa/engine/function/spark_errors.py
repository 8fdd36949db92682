"""The translation of Spark's errors into Kappa's errors.

An error is one of four kinds: the user's mistake, lost data, an unreachable broker, or any other
error. The first two kinds stop a job for good, since the same slice would fail again. After any
other error, the supervisor starts the job again.
"""

from __future__ import annotations

import re

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from kappa.base import errors
from kappa.base.errors import AccessRefused, AclMissing, Broken, KappaError, Unreachable
from kappa.declare.pipeline import Pipeline
from kappa.engine.function.failure import explained, hoarded

# PySpark raises its own class for errors that PySpark knows, and py4j's class for all others.
# Delta's Python side does the same.
SPARK_ERRORS = (PySparkException, Py4JError)
# Spark's Kafka source reports by these words that the offsets to read are not in the log any more.
_LOST = (
    "data may have been missed",
    "data may have been lost",
    "KAFKA_DATA_LOSS",
    "failOnDataLoss",
    "OffsetOutOfRange",
    "some partitions have been deleted",
    "out of range",
)
_AWAY = (
    "TimeoutException",
    "DisconnectException",
    "BrokerNotAvailable",
    "Failed to construct kafka",
    "bootstrap",
    "Connection refused",
)

# An error of our own in a text of a worker, indented or not, or of `raise_error`.
_OURS = re.compile(rf"(?m)^ *{re.escape(KappaError.__module__)}\.(\w+): (.+) \(([^()]+)\)$")


def translated(error: PySparkException | Py4JError, pipeline: Pipeline) -> KappaError:
    """Translates a Spark error into the error with which the job ends."""
    text = str(error)
    ours = _raised_by_worker(text) or explained(error, pipeline) or hoarded(error, pipeline)
    if ours is not None:
        return ours
    first = _first_line(text) or type(error).__name__
    if "kafka" in text.lower() and any(word in text for word in _LOST):
        return Broken(
            f"the log no longer has what pipeline {pipeline.name} was about to read: {first}",
            hint=f"see kappa topics list; kappa replay {pipeline.name} begins at what is there",
        )
    if "org.apache.kafka" in text and "AuthorizationException" in text:
        return AclMissing(
            f"the Kafka cluster does not allow what Spark asks: {first}",
            hint="kappa doctor --acls lists the rules that are needed",
        )
    if "org.apache.kafka" in text and "AuthenticationException" in text:
        return AccessRefused(
            f"the Kafka cluster does not let Spark in: {first}",
            hint="see [kafka.auth] in kappa.toml; the job is started again by itself",
        )
    if "kafka" in text.lower() and any(word in text for word in _AWAY):
        return Unreachable(
            f"Spark lost the Kafka broker: {first}",
            hint="the job is started again by itself; see kappa logs broker",
        )
    return KappaError(
        f"Spark failed: {first}",
        hint="the job is started again by itself; kappa logs has all of it",
    )


def raised_at_spark(error: KappaError) -> str:
    """Returns a text for SQL's `raise_error`, from which `translated` restores `error`."""
    return f"\n{KappaError.__module__}.{type(error).__name__}: {error}\n"


def _raised_by_worker(text: str) -> KappaError | None:
    found = _OURS.findall(text)
    if not found:
        return None
    # The error that was raised last is the most telling error.
    name, message, hint = found[-1]
    kind = getattr(errors, name, None)
    return (
        kind(message, hint=hint)
        if isinstance(kind, type) and issubclass(kind, KappaError)
        else None
    )


def _first_line(text: str) -> str:
    # py4j's errors begin with the call that failed; the Java error follows after a colon.
    lines = [
        line.removeprefix(": ")
        for line in text.strip().splitlines()
        if not line.startswith("An error occurred while calling")
    ]
    return lines[0][:500] if lines else ""
