"""The topics for which events are collected, as the project's files declare them now.

The collector accepts an event exactly if a slice would accept it, because the collector and the
engine read events with the same code. If the project's files, or files that they name, change, all
files are loaded again. If the files cannot be loaded, the previous declarations remain in use, so a
mistake in a file does not stop the collection of events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from kappa.base.errors import KappaError, UsageError, did_you_mean
from kappa.base.sections import PullSettings
from kappa.code.project import load_files
from kappa.code.sources import Sources
from kappa.declare.formats.avro_events import Avro
from kappa.declare.formats.json_events import Json
from kappa.declare.formats.protobuf_events import Protobuf
from kappa.declare.formats.topic_formats import changes_of, is_framed
from kappa.declare.pipeline import Pipeline
from kappa.declare.project_files import named_files_changed
from kappa.declare.topic import Topic
from kappa.declare.values.columns import Scalar
from kappa.kafka.headers import Headers
from kappa.kafka.producer import ProducedRecord
from kappa.records.identity import identity_of
from kappa.records.record import RecordReader


class CollectedTopic:
    """A topic for which events are collected.

    `partitions` is the broker's number of partitions, or None if it is not known yet.
    """

    def __init__(self, topic: Topic) -> None:
        self.name = topic.name
        self.partitions: int | None = None
        # False once the broker has answered that the topic does not exist.
        self.exists = True
        self._reader = RecordReader(topic)
        # A repeat has to reach the partition of the first event, which remembers the identity.
        self._identity = identity_of(topic) if topic.key is None else None

    @property
    def needs_partitions(self) -> bool:
        """Returns True if the number of partitions is needed for sending, but is not known."""
        return self._identity is not None and self.partitions is None

    def record(self, event: bytes, headers: Headers = ()) -> ProducedRecord:
        """Returns the record of an event. Raises Rejected if the event is not valid."""
        row, key = self._reader.read_unkeyed(event)
        partition = None
        if self._identity is not None and self.partitions is not None:
            digest = self._identity(row)
            if digest is not None:
                partition = int.from_bytes(digest[:8]) % self.partitions
        return ProducedRecord(event, key, headers=headers, partition=partition)


class DeclaredTopics:
    """The topics that the setting `collect.topics` names, by name."""

    def __init__(
        self,
        project: Path,
        names: Sequence[str],
        *,
        say: Callable[[str], None],
        pull: Mapping[str, PullSettings] | None = None,
        load: Callable[[Path], Mapping[str, Topic]] | None = None,
    ) -> None:
        """Loads the declarations of the topics `names` from the project.

        `pull` contains the declared sources, by name. If a source adds a field to its events, the
        topic must declare this field. `say` gets messages for the operator. `load` replaces the
        function that loads the project, for tests. Raises UsageError if a topic is not declared,
        and the errors of loading.
        """
        self._project = project
        self._names = names
        self._pull = pull or {}
        self._say = say
        self._load = load or partial(topics_to_collect, names)
        self._changed_at = Sources(project).changed_at()
        self.topics = self._loaded()

    def reload(self) -> None:
        """Loads the declarations again if the project's files have changed."""
        try:
            changed_at = Sources(self._project).changed_at()
        except OSError:
            # A folder went away while it was listed: the next look sees the present files.
            return
        if changed_at == self._changed_at and not named_files_changed():
            return
        self._changed_at = changed_at
        try:
            topics = self._loaded()
        except KappaError as error:
            self._say(f"the declarations stay as they were: {error}")
            return
        for name, topic in topics.items():
            topic.partitions = self.topics[name].partitions
            topic.exists = self.topics[name].exists
        self.topics = topics
        self._say("the project's files have changed, and its topics are loaded again")

    def _loaded(self) -> Mapping[str, CollectedTopic]:
        declared = self._load(self._project)
        ensure_collectable(self._names, declared)
        ensure_topic_fields(self._pull, declared)
        return {name: CollectedTopic(declared[name]) for name in self._names}


def ensure_collectable(names: Iterable[str], declared: Mapping[str, Topic]) -> None:
    """Raises UsageError if events cannot be collected for a topic.

    `names` are the topics of the setting `collect.topics`. A topic must be declared, and the
    collector must be able to write events and keys in the declared formats.
    """
    for name in names:
        if name not in declared:
            raise UsageError(
                f"collect.topics names {name}, and the project declares no such topic",
                hint=did_you_mean(name, declared) or f"it declares {', '.join(declared) or 'none'}",
            )
        form = declared[name].format
        is_binary = isinstance(form, Avro | Protobuf)
        if is_binary or is_framed(form) or changes_of(form) is not None:
            what = (
                "are a database's changes"
                if changes_of(form) is not None
                else f"are {type(form).__name__}"
                if is_binary
                else "begin with a registry's id"
            )
            raise UsageError(
                f"collect.topics names {name}, whose events {what}, which is not collected",
                hint="collect them into a topic of JSON, CSV or text",
            )
        if declared[name].key_format is not None:
            raise UsageError(
                f"collect.topics names {name}, whose keys have a format, which is not written",
                hint="collect into a topic whose key is text, or that has none",
            )


def ensure_topic_fields(pull: Mapping[str, PullSettings], declared: Mapping[str, Topic]) -> None:
    """Raises UsageError if a topic does not declare the field that an MQTT source fills.

    The setting `topic_field` of a source names a field, into which the collector writes the name of
    the event's MQTT topic. The Kafka topic must have JSON events and declare the field as text.
    """
    for name, each in pull.items():
        topic = declared.get(each.topic)
        if not each.topic_field or topic is None:
            continue
        here = f"collect.pull.{name}.topic_field is {each.topic_field!r}"
        if not isinstance(topic.format, Json):
            raise UsageError(
                f"{here}, and the events of topic {topic.name} are not JSON",
                hint="take it out, or declare the topic as JSON",
            )
        fields = [column.name for column in topic.columns if column.type == Scalar("string")]
        if each.topic_field not in fields:
            raise UsageError(
                f"{here}, and topic {topic.name} declares no such field of text",
                hint=did_you_mean(each.topic_field, fields)
                or f'declare it: event="{each.topic_field} string, ..."',
            )


def topics_to_collect(names: Iterable[str], project: Path) -> Mapping[str, Topic]:
    """Returns the topics that a project's pipelines read, by name.

    `names` are the topics of the setting `collect.topics`. Raises UsageError if a sink writes to
    one of these topics. If one of these topics is not declared in the files that could be loaded,
    and another file could not be loaded, raises the error of that other file.
    """
    found = load_files(project)
    topics = {
        topic.name: topic for pipeline in found.pipelines.values() for topic in pipeline.topics
    }
    if not topics.keys() >= set(names):
        found.ensure_loaded()
    ensure_no_sink(names, found.pipelines.values())
    return topics


def ensure_no_sink(names: Iterable[str], pipelines: Iterable[Pipeline]) -> None:
    """Raises UsageError if a sink writes to a topic of the setting `collect.topics`.

    The topic of a sink may contain only the rows of the sink's table.
    """
    sinks = {sink.name: sink for pipeline in pipelines for sink in pipeline.sinks}
    for name in names:
        if name in sinks:
            raise UsageError(
                f"collect.topics names {name}, which the sink at {sinks[name].source} writes: "
                f"the topic has the rows of {sinks[name].of}, and no other records",
                hint=f"collect into another topic, or give the sink another one than {name}",
            )
