"""A broker's answers: each is waited for within a limit, its errors put in our words."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import NoReturn, TypeVar

from confluent_kafka import KafkaError, KafkaException

from kappa.base.errors import KappaError, Unreachable, UsageError
from kappa.log.consumers import PATIENCE_SECONDS

_Answer = TypeVar("_Answer")

UP = "start the platform with: kappa up -d; or see kafka.bootstrap_servers in kappa.toml"
AWAY = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
    }
)
# A leader is being made or moved: right after a topic is made, and when a broker returns.
NOT_YET = frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)


class Answers:
    """The answers of one broker, or the errors that its refusals mean."""

    def __init__(self, bootstrap_servers: str) -> None:
        """Takes the address that errors name."""
        self._bootstrap_servers = bootstrap_servers

    def of(self, future: Future[_Answer], otherwise: str) -> _Answer:
        """Returns an answer.

        Raises Unreachable if none arrives, and KappaError as `refuse` does.
        """
        try:
            return future.result(PATIENCE_SECONDS + 1)
        except KafkaException as error:
            self.refuse(error, otherwise)
        except TimeoutError as error:
            raise self.unreachable() from error

    def refuse(self, error: KafkaException, otherwise: str) -> NoReturn:
        """Raises the error that one of the broker's means.

        `otherwise` names the action that failed.
        """
        if code_of(error) in AWAY:
            raise self.unreachable() from error
        raise KappaError(
            f"{otherwise}: {error.args[0].str()}", hint="see the broker's log: kappa logs broker"
        ) from error

    def unreachable(self) -> Unreachable:
        """Returns the error that no broker answers."""
        return Unreachable(f"no Kafka broker answers at {self._bootstrap_servers}", hint=UP)


def wait_until(reached: Callable[[], bool], what: str) -> None:
    """Waits for a state of the broker.

    Raises Unreachable, naming the state as `what`, if it takes too long.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not reached():
        if time.monotonic() > deadline:
            raise Unreachable(
                f"waited {PATIENCE_SECONDS:.0f} seconds for {what}",
                hint="see the broker's log: kappa logs broker",
            )
        time.sleep(0.05)


def code_of(error: KafkaException) -> int:
    """Returns the code of an error, one of KafkaError's."""
    return int(error.args[0].code())


@contextmanager
def making(what: str) -> Iterator[None]:
    """Turns librdkafka's reports of its options into a UsageError."""
    try:
        yield
    except KafkaException as error:
        raise UsageError(
            f"{what} of Kafka cannot be made from kafka.options: {error.args[0].str()}",
            hint="see [kafka.options] in kappa.toml; names are librdkafka's",
        ) from error
