"""The transactions of a topic whose broker is away for a while."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from losing import Restarted
from sinking import records_of

from kappa import Topic
from kappa.base.errors import KappaError

pytestmark = [pytest.mark.long, pytest.mark.jvm]


def test_position_never_sent_is_given_up(kafka: Restarted, topic_name: str) -> None:
    """A position that was never sent is given up at once.

    Otherwise, a sink would be late by 40 s after each restart of its broker.
    """
    kafka.log.create(Topic(topic_name, event="n int", partitions=1))
    taken, errors = threading.Event(), list[KappaError]()

    def rows() -> Iterator[tuple[bytes, bytes | None]]:
        yield b"key", b"2"
        taken.set()

    with kafka.log.transactions(topic_name) as writer:
        writer.begin()
        writer.send([(b"key", b"1")], {}, "first")
        kafka.broker.stop()

        def send() -> None:
            try:
                writer.send(rows(), {}, "second")
            except KappaError as error:
                errors.append(error)

        sending = threading.Thread(target=send)
        sending.start()
        assert taken.wait(60)
        kafka.start()
        sending.join(120)
        assert not sending.is_alive()

    assert [error.message for error in errors] == [
        f"the position of topic {topic_name} was not taken, as the broker was away"
    ]
    with kafka.log.transactions(topic_name) as writer:
        assert writer.begin() == "first"
        writer.send([(b"key", b"2")], {}, "second")
        assert writer.position() == "second"
    assert [record.value for record in records_of(kafka.log, topic_name)] == [b"1", b"2"]
