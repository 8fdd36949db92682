"""The topic of a sink: made as it has to be, or refused if it would lose rows."""

from __future__ import annotations

from kappa.base.errors import KappaError
from kappa.base.failpoint import failpoint
from kappa.declare.sink import SinkBirth
from kappa.declare.topic import Topic
from kappa.declare.topic_options import TopicKind
from kappa.kafka.client import Log
from kappa.state.build import Birth


def ensure_topic(log: Log, birth: Birth, sink: SinkBirth) -> str:
    """Makes a sink's topic if there is none, and returns its id.

    Raises KappaError if the topic would lose rows, and its deploy has not let that through.
    """
    facts = log.facts(sink.topic)
    if facts is None:
        failpoint("sink.before_topic")
        # Its records are nobody's events: the declaration matters for its key alone.
        made = Topic(
            sink.topic,
            event="key string",
            key="key",
            kind=TopicKind.COMPACTED,
            partitions=sink.partitions,
        )
        facts = log.create(made)
        failpoint("sink.after_topic")
    policy = log.config(sink.topic).get("cleanup.policy", "")
    if policy != "compact" and not is_let(birth, sink.topic):
        raise KappaError(
            f"topic {sink.topic} has cleanup.policy={policy}: rows would be deleted by their age",
            hint="give the topic cleanup.policy=compact, or the sink another topic",
        )
    return facts.id


def is_let(birth: Birth, topic: str) -> bool:
    """Returns True if the deploy of a build has let a sink's topic through."""
    return any(each.startswith(f"sink:{topic}: ") for each in birth.accepted)
