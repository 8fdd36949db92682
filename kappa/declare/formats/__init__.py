"""The formats of records: they decode bytes to the fields of an event, or reject the bytes.

Formats do not depend on topics. `kappa/records/record.py` makes rows from the decoded fields. Each
format is one file in this folder, and has an entry in `topic_formats.py`. Read the package in this
order:

- `format.py`: the protocol of formats, and of the readers that they create.
- `topic_formats.py`: the formats that a topic may declare for its values and its keys.
- `json_events.py`: JSON objects, which are the default format.
- `text_values.py`: values that a format returns as texts.
- `csv_events.py`: one line of separated values.
- `text_events.py`: one line of text, parsed with a regular expression, such as a web server's log.
- `schema_fields.py`: the columns for the fields of a schema, and the conversion of their values.
- `registry_schemas.py`: schemas of a registry, pinned by a file of the project or requested by
  their id.
- `avro_events.py`: Avro records; `avro_schema.py` parses their schemas.
- `protobuf_events.py`: Protobuf messages; `protobuf_schema.py` parses their schemas.
- `debezium_events.py`: changes of a database's rows, as Debezium writes them;
  `debezium_envelope.py` reads one change, and `debezium_values.py` the values of rows.
"""

__all__ = [
    "avro_events",
    "csv_events",
    "format",
    "json_events",
    "protobuf_events",
    "registry_schemas",
    "text_events",
    "topic_formats",
]
