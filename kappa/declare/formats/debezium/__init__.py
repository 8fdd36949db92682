"""Changes of a database's rows, as Debezium writes them.

Read in this order:

- `change.py`: what a change is to the records of a topic, and the reader that gives changes.
- `written.py`: how a value was written, by the schema beside it: Connect's in JSON, or Avro's.
- `row_values.py`: the values of rows, by how they were written and what the column declares.
- `facts.py`: what a change tells beside the row: operation, place, time, identity.
- `envelope.py`: one change, of an envelope and its key.
- `json_parts.py`, `avro_parts.py`: values and keys in either encoding, taken apart.
- `changes.py`: `Debezium`, the format; `change_sample.py` writes a change for tests.
"""
