"""The decoder of whole batches of plain events, much faster than single decoding.

The decoder is compiled code. kappa/records/record.py alone defines validity, and this decoder takes
only records that are proven valid. A record is taken only if its text beside the values is, byte
for byte, the text of a layout, and if the values have exactly the types of their columns. So the
record is a flat JSON object with each field once. A layout, the order of fields and the spaces
between fields, is learned from the records themselves; a topic has few layouts. DuckDB makes values
other than integers, booleans and texts from the text. Every other record, valid or not, is left to
the reader of records.
"""

from __future__ import annotations

from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kappa.declare.formats.json_events import Json
from kappa.declare.formats.topic_formats import is_framed
from kappa.declare.topic import Topic
from kappa.declare.values.arrow import Places, arrow_schema
from kappa.declare.values.columns import INTEGERS, Column, Decimal, Scalar, Type
from kappa.records.decode.find_loops import Spelling
from kappa.records.decode.find_values import Found, Texts, find, strings, texts_of
from kappa.records.decode.frames import messages_of
from kappa.records.decode.layout import Layout, expected_value, is_plain_schema, layout_of
from kappa.records.decode.tried import Tried
from kappa.records.decode.typed_texts import typed_columns

# If bytes are not UTF-8, so many records are left to the other reader.
_TOGETHER = 1_000
# If a topic has more kinds of events than this, the others are read record by record.
_LAYOUTS = 8
# A new layout is looked for only once so many records have no known layout, and only until so many
# looks have failed.
_STRANGE = 50
_LOOKS = 50


class PlainEvents:
    """A reader of a topic's plain events, for a single thread."""

    def __init__(self, topic: Topic, left_out: frozenset[str]) -> None:
        """Takes a topic that `of` accepts."""
        self._topic = topic
        self._framed = is_framed(topic.format)
        self._left_out = left_out
        self._schema = arrow_schema([(column.name, str(column.type)) for column in topic.columns])
        self._layouts: list[Layout] = []
        self._tried, self._looks = Tried(), 0

    @classmethod
    def of(cls, topic: Topic, left_out: frozenset[str] = frozenset()) -> Self | None:
        """Makes a reader of a topic's events. Columns that are `left_out` may be null.

        Returns None if the declaration has demands that this reader does not support.
        """
        simple = all(
            isinstance(column.type, Scalar | Decimal) and column.default is None and not column.was
            for column in topic.columns
        )
        key = topic.key_column
        keyed = key is None or str(key.type) in {"string", *INTEGERS}
        # Any other topic makes a record depend on earlier records, or on the schema's rules.
        alone = (
            isinstance(topic.format, Json)
            and (topic.schema is None or is_plain_schema(topic.schema))
            and topic.lateness_ms is None
            and not topic.identity
        )
        return cls(topic, left_out) if simple and keyed and alone else None

    @property
    def pays(self) -> bool:
        """Returns False if plain records are too rare to be worth a try."""
        return self._tried.pays

    def read(self, keys: pa.Array, values: pa.Array) -> list[tuple[Places, pa.RecordBatch]]:
        """Reads the plain records of a batch (bytes, or null).

        Returns parts: places in ascending order, and the rows of the records there.
        """
        texts = _cast_texts(messages_of(values) if self._framed else values)
        records, by_key = texts_of(texts), texts_of(keys)
        parts: list[tuple[Places, pa.RecordBatch]] = []
        left = np.arange(len(texts))
        for layout in self._layouts:
            left = self._read_by(layout, records, by_key, left, parts)
        while (unknown := self._unknown(texts, left)) is not None:
            self._layouts.append(unknown)
            left = self._read_by(unknown, records, by_key, left, parts)
        self._tried.add(len(texts), len(texts) - len(left))
        return parts

    def _read_by(
        self,
        layout: Layout,
        records: Texts,
        keys: Texts,
        left: Places,
        parts: list[tuple[Places, pa.RecordBatch]],
    ) -> Places:
        """Adds a part with those records at these places that have the given layout.

        Returns the places of the other records.
        """
        key = next(
            (number for number, field in enumerate(layout.fields) if field.name == self._topic.key),
            -1,
        )
        found = find(
            records,
            left,
            layout.between,
            [expected_value(field) for field in layout.fields],
            keys,
            key,
        )
        sure = np.flatnonzero(found.sure)
        if not len(sure):
            return left
        rows, fit = self._rows(layout, records, found, sure)
        parts.append((left[sure[fit]], rows if fit.all() else rows.filter(pa.array(fit))))
        others = np.ones(len(left), np.bool_)
        others[sure[fit]] = False
        return left[others]

    def _rows(
        self, layout: Layout, records: Texts, found: Found, sure: Places
    ) -> tuple[pa.RecordBatch, npt.NDArray[np.bool_]]:
        """Makes rows from records of a layout, and marks the valid rows.

        The text alone does not prove all values valid.
        """
        place_of = {field.name: number for number, field in enumerate(layout.fields)}
        columns: dict[str, pa.Array] = {}
        texts: dict[str, tuple[Type, pa.Array]] = {}
        for column in self._topic.columns:
            place = place_of.get(column.name)
            if place is None:
                continue
            read_already = layout.fields[place].spelling in {Spelling.INTEGER, Spelling.BOOLEAN}
            # A column that is left out is made only if its value decides whether the record is
            # valid.
            if column.name in self._left_out and (read_already or column.type == Scalar("string")):
                continue
            values, lengths = found.values[place, sure], found.lengths[place, sure]
            if read_already:
                columns[column.name] = _plain_column(column, values, lengths < 0)
            else:
                columns[column.name] = strings(records, values, lengths)
                if column.type != Scalar("string"):
                    texts[column.name] = column.type, columns[column.name]
        made, fit = typed_columns(texts, len(sure))
        columns |= made
        arrays = [
            columns[each.name].cast(each.type)
            if each.name in columns
            else pa.nulls(len(sure), each.type)
            for each in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema), fit

    def _unknown(self, texts: pa.Array, left: Places) -> Layout | None:
        """Finds a layout that is not known yet among the records at these places."""
        if len(left) < _STRANGE or len(self._layouts) == _LAYOUTS or self._looks == _LOOKS:
            return None
        samples = [texts[int(place)].as_py() for place in (left[0], left[len(left) // 2], left[-1])]
        found = next(
            (
                layout
                for text in samples
                if text is not None
                and (layout := layout_of(text, self._topic)) is not None
                and layout not in self._layouts
            ),
            None,
        )
        self._looks += found is None
        return found


def _plain_column(
    column: Column, values: npt.NDArray[np.int64], null: npt.NDArray[np.bool_]
) -> pa.Array:
    if column.type == Scalar("boolean"):
        return pa.array(values == 1, mask=null)
    return pa.array(values * 1000 if column.type == Scalar("timestamp") else values, mask=null)


def _cast_texts(values: pa.Array) -> pa.Array:
    """Casts bytes to texts; null where bytes, or some bytes nearby, are not UTF-8."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        if len(values) <= _TOGETHER:
            return pa.nulls(len(values), pa.string())
    return pa.concat_arrays(
        [_cast_texts(values.slice(start, _TOGETHER)) for start in range(0, len(values), _TOGETHER)]
    )
