"""Unsettled keys: keys of a compacted topic that were written again after the compared offsets.

Compaction removes an older record once a newer record of the same key exists. A build that read the
topic before the compaction has read the older record. A build that reads later has not. So up to
the same offset both builds are right, and still their rows differ. Therefore the keys written since
are read from the log, and rows with these keys are set aside (law 5). Only one case is missed: a
tombstone that was written and compacted away since. Kafka keeps tombstones for
`delete.retention.ms`, a day by default.
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
    """Yields the texts of keys that have no format: the keys themselves, decoded as UTF-8.

    Keys that are not UTF-8 are skipped.
    """
    for key in keys:
        try:
            yield key.decode()
        except UnicodeDecodeError:
            # Its record is a reject, so no row has it.
            continue


def texts_in(topic: Topic) -> KeyTexts:
    """Returns a function that reads a topic's keys by their declared format."""
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
    """Returns a function that maps a table to the reader of its compacted topic's keys.

    If the keys have a format, the build's code is loaded, because only the code has the format.
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

    The keys are texts, and may repeat. Returns None if the table is not the latest of a compacted
    topic, because then all rows are settled. Raises Unreachable if there is no broker to ask.
    Raises Conflict if the topic is gone, or another topic has its name.
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
