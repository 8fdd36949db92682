"""Whole batches of plain records, decoded by compiled code, many times as fast as singly.

Only what is proven valid is taken. All other records are left to the reader of records. Read in
this order:

- `plain_reader.py`, `readers.py`: what a reader answers, and which one a topic has.
- `plain_events.py`: plain events of JSON.
- `tried.py`: whether a quick way pays.
- `layout.py`: how plain events of one kind are written.
- `find_values.py`, `find_loops.py`: where the values of a layout are, and the compiled loops.
- `typed_texts.py`: values that DuckDB makes of their texts.
- `frames.py`: what a schema registry's serializers put before messages.
- `plain_avro.py`, `plain_protobuf.py`: the same for binary records; their loops are in
  kappa/formats.
- `formatted_keys.py`: keys in a format of their own.
- `binary_columns.py`: columns of the values that those loops find.
"""
