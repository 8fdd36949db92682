"""A broker's refusals, translated into our messages."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from kappa.base.errors import KappaError
from kappa.kafka.broker_requests import Answers


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        (KafkaError.INVALID_CONFIG, "correct the setting that the broker names"),
        (KafkaError.INVALID_REPLICATION_FACTOR, "see the broker's log: kappa logs broker"),
    ],
)
def test_the_hint_of_a_refusal_is_what_helps(code: int, hint: str) -> None:
    error = KafkaException(KafkaError(code, "Invalid value abc for retention.ms"))
    with pytest.raises(KappaError) as refused:
        Answers("127.0.0.1:1", {}).refuse(error, "it could not be set")
    assert refused.value.message == "it could not be set: Invalid value abc for retention.ms"
    assert refused.value.hint == hint
