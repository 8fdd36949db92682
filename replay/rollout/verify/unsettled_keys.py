"""Finds unsettled keys: keys of a compacted topic that were written again after given offsets.

Compaction removes an older record once a newer record of the same key exists. A build that read the
topic before the compaction has read the older record. A build that reads the topic later has not.
So at the same offsets both builds are correct, but their rows differ. Therefore the keys that were
written after the compared offsets are read from the log, and rows with these keys are not compared,
but counted. Only one case is missed: a tombstone that was written after the offsets and has been
compacted away. Kafka keeps tombstones for `delete.retention.ms`, a day by default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from kappa.base.errors import Conflict, Unreachable
from kappa.code.code_snapshot import load_snapshot
from kappa.code.fingerprint import has_key_format
from kappa.declare.topic import Topic
from kappa.declare.topic_options import TopicKind
from kappa.declare.values.reason import Rejected
from kappa.records.keys import KeyReader
from kappa.state.build import Birth
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.state.table import TableBirth

if TYPE_CHECKING:
    from kappa.kafka.client import Log


# Gives the texts of keys in a table's column, without keys that no row can have.
KeyTexts = Callable[[Iterable[bytes]], Iterator[str]]


def plain_texts(keys: Iterable[bytes]) -> Iterator[str]:
    """Decodes keys that have no declared format as UTF-8, and yields them as texts.

    Keys that are not UTF-8 are skipped.
    """
    for key in keys:
        try:
            yield key.decode()
        except UnicodeDecodeError:
            # Its record is a reject, so no row has it.
            continue


def texts_in(topic: Topic) -> KeyTexts:
    """Returns a function that decodes keys by the topic's key format, and yields them as texts."""
    value_of = KeyReader(topic).value

    def texts(keys: Iterable[bytes]) -> Iterator[str]:
        for key in keys:
            try:
                yield str(value_of(key))
            except Rejected:
                # Its record is a reject, so no row has it.
                continue

    return texts


def texts_for(store: Store, birth: Birth) -> Callable[[TableBirth], KeyTexts]:
    """Returns a function that maps a table to the decoder of the keys in its compacted topic.

    If the keys have a declared format, the build's code is loaded, because only the code defines
    the format.
    """

    def texts_of(table: TableBirth) -> KeyTexts:
        if not has_key_format(birth.declarations.get(f"topic {table.latest}", "")):
            return plain_texts
        pipeline = load_snapshot(store, birth)
        return texts_in(next(each for each in pipeline.topics if each.name == table.latest))

    return texts_of


def unsettled_keys(
    log: Log | None,
    birth: Birth,
    table: TableBirth,
    offsets: Offsets,
    texts_of: Callable[[TableBirth], KeyTexts] = lambda _table: plain_texts,
) -> Iterable[str] | None:
    """Returns the keys of a table's compacted topic that have a record at or after `offsets`.

    The keys are texts, and may repeat. Returns None if the table does not contain the latest values
    of a compacted topic; then all rows can be compared. Raises Unreachable if `log` is None. Raises
    Conflict if the topic no longer exists, or if another topic has its name.
    """
    topic = next((each for each in birth.topics if each.name == table.latest), None)
    if topic is None or topic.kind != TopicKind.COMPACTED:
        return None
    if log is None:
        raise Unreachable(
            f"table {table.name} is the latest of the compacted topic {topic.name}, and "
            "there is no broker to tell which of its keys are settled",
            hint="start it with: kappa up -d",
        )
    facts = log.facts(topic.name)
    if facts is None or facts.id != topic.id:
        raise Conflict(
            f"topic {topic.name} was deleted{' and created again' if facts else ''} since "
            f"build {birth.build} was born",
            hint=f"stage a new build: kappa replay {birth.pipeline}",
        )
    return texts_of(table)(log.keys(topic.name, offsets))
