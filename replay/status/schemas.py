"""Compares the declared schemas of topics with the subjects of the registry."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kappa.declare.formats.avro_events import KIND, Avro
from kappa.declare.formats.registry_schemas import RegisteredSchema
from kappa.declare.formats.topic_formats import is_framed, pin_of
from kappa.declare.topic import Topic
from kappa.kafka.registry import RegistryClient


@dataclass(frozen=True, slots=True)
class CheckedTopic:
    """A topic's declared schema, the newest version of its subject, and the registry's verdict."""

    topic: str
    subject: str
    declared: str
    newest: str
    is_compatible: bool
    verdict: str


def checked_topics(client: RegistryClient, topics: Iterable[Topic]) -> Iterator[CheckedTopic]:
    """Yields the registry's verdict on each value or key format whose schema is in the registry.

    The verdict says whether the declared schema is compatible with the subject. If a topic declares
    no subject, the check uses the subject that serializers use by default for the topic's values or
    keys. Formats without a schema in the registry are skipped.
    """
    known = {*client.subjects()}
    parts = [
        (topic, *of)
        for topic in topics
        for of in zip(topic.record_formats, ("value", "key"), strict=False)
    ]
    for topic, form, part in parts:
        pin = pin_of(form)
        if isinstance(form, Avro):
            schema, declared = RegisteredSchema(KIND, form.text, form.references), str(form.schema)
        elif pin is not None:
            schema, declared = pin.schema, ""
        else:
            continue
        if not is_framed(form):
            continue
        subject = f"{topic.name}-{part}" if pin is None else pin.subject
        declared = declared if pin is None else str(pin.version)
        if subject not in known:
            yield CheckedTopic(
                topic.name, subject, declared, "", is_compatible=True, verdict="no such subject yet"
            )
            continue
        newest = client.pin(subject).version
        why = client.incompatible(subject, schema)
        verdict = f"not compatible: {'; '.join(why)}" if why else "compatible"
        if pin is not None and pin.version != newest:
            verdict += f", and version {newest} is newer: kappa schemas pin {subject}"
        yield CheckedTopic(
            topic.name,
            subject,
            declared,
            str(newest),
            is_compatible=not why,
            verdict=verdict,
        )
