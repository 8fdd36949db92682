"""Decodes whole batches of plain events by compiled code, many times as fast as record by record, and only what is proven valid.

What is valid is defined in kappa/records/record.py alone. Here a record is taken only where it is, byte for byte, the text between the values of a layout, and
between them values of exactly their columns' types: that is one flat JSON object, with each field once. The order of fields and the spaces
between them, a layout, are learned from the records themselves; a topic has one or a few. Values that are more than integers, truths
and texts are made by DuckDB from their text. Every other record, be it valid or not, is left to the reader of records. Read next: engine/decode/find_values.py,
which finds the values; engine/decode/decoder.py, which asks both.
"""

from __future__ import annotations

from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kappa.declare.topic import Topic
from kappa.engine.decode.assemble import Places
from kappa.engine.decode.find_loops import Spelling
from kappa.engine.decode.find_values import Found, Texts, find, strings, texts_of
from kappa.engine.decode.layout import Layout, expected_value, layout_of
from kappa.engine.decode.typed_texts import typed_columns
from kappa.values.arrow import arrow_schema
from kappa.values.columns import INTEGERS, Column, Decimal, Scalar, Type

# It is judged by so many records whether it pays.
_TRIES = 2_000
# Where bytes are no UTF-8, so many records are left to the other reader.
_TOGETHER = 1_000
# A topic with more kinds of events than this is read record by record, as far as they are of others.
_LAYOUTS = 8
# So many records must be of no known layout before another one is looked for, and so many looks in vain are enough.
_STRANGE = 50
_LOOKS = 50


class PlainEvents:
    """Reads the plain ones among the events of a topic. It is not for several threads."""

    def __init__(self, topic: Topic, left_out: frozenset[str]) -> None:
        """Of a topic of which `of` says that it can be."""
        self._topic = topic
        self._left_out = left_out
        self._schema = arrow_schema([(column.name, str(column.type)) for column in topic.columns])
        self._layouts: list[Layout] = []
        self._tries = self._sure = self._looks = 0

    @classmethod
    def of(cls, topic: Topic, left_out: frozenset[str] = frozenset()) -> Self | None:
        """A reader of its events; None where what is declared asks for more than is known here. Columns that are `left_out` may be null."""
        simple = all(
            isinstance(column.type, Scalar | Decimal) and column.default is None and not column.was
            for column in topic.columns
        )
        key = topic.key_column
        keyed = key is None or str(key.type) in {"string", *INTEGERS}
        # The reader of records goes by the order of records there, and asks of each what is remembered.
        alone = topic.schema is None and topic.lateness_ms is None and not topic.identity
        return cls(topic, left_out) if simple and keyed and alone else None

    @property
    def pays(self) -> bool:
        """False where so few of a topic's records are plain that asking for them costs more than it saves."""
        return self._tries < _TRIES or 2 * self._sure > self._tries

    def read(self, keys: pa.Array, values: pa.Array) -> list[tuple[Places, pa.RecordBatch]]:
        """Which of these records (bytes, or null) are plain, by their places, and the rows of those; in parts, each in the order of its places."""
        texts = _texts(values)
        records, by_key = texts_of(texts), texts_of(keys)
        parts: list[tuple[Places, pa.RecordBatch]] = []
        left = np.arange(len(texts))
        for layout in self._layouts:
            left = self._read_by(layout, records, by_key, left, parts)
        while (unknown := self._unknown(texts, left)) is not None:
            self._layouts.append(unknown)
            left = self._read_by(unknown, records, by_key, left, parts)
        self._tries += len(texts)
        self._sure += len(texts) - len(left)
        return parts

    def _read_by(
        self,
        layout: Layout,
        records: Texts,
        keys: Texts,
        left: Places,
        parts: list[tuple[Places, pa.RecordBatch]],
    ) -> Places:
        """Adds a part with those of the records at these places that are of one layout; gives the places of the others."""
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
        """The rows of records of a layout, and which of them are valid: of some values their text does not say it all."""
        place_of = {field.name: number for number, field in enumerate(layout.fields)}
        columns: dict[str, pa.Array] = {}
        texts: dict[str, tuple[Type, pa.Array]] = {}
        for column in self._topic.columns:
            place = place_of.get(column.name)
            if place is None:
                continue
            read_already = layout.fields[place].spelling in {Spelling.INTEGER, Spelling.BOOLEAN}
            # What is left out is made only where that tells whether it is valid.
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
        """A layout that is not known yet, of one of the records at these places."""
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


def _texts(values: pa.Array) -> pa.Array:
    """Bytes as texts; null where they, or some of those beside them, are none."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        if len(values) <= _TOGETHER:
            return pa.nulls(len(values), pa.string())
    return pa.concat_arrays(
        [_texts(values.slice(start, _TOGETHER)) for start in range(0, len(values), _TOGETHER)]
    )
