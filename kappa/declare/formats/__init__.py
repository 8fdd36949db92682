"""The formats of records: bytes to the fields of an event, or a reason. They know no topic.

`kappa/records/record.py` makes rows of fields, whatever their format was. A format is one file
here, with a line in `named.py`. Read in this order:

- `format.py`: what every format is: `RecordFormat`, and the reader that it makes.
- `named.py`, `key_formats.py`: the formats that values and keys of a topic may declare;
  `changes.py`: what a topic of changes at a source may declare besides.
- `json_events.py`: JSON objects, as a topic has them if it declares nothing else.
- `texts.py`, `time_layout.py`: values that are given as texts, and times in other spellings.
- `csv_events.py`: one line of separated values.
- `text_events.py`: one line of text by a regular expression, such as a web server's log.
- `landing.py`: the columns that the fields of a schema land as, and their values.
- `avro_events.py`: Avro's records, with or without a schema registry; `avro_schema.py` parses their
  schemas, `avro_columns.py` makes columns of them, `avro_values.py` writes values, and
  `avro_loops.py` has the compiled loops for many records at once.
- `schema_source.py`: schemas by the ids of a registry, and the framing of records with an id.
- `pinned.py`: subjects of a registry, as files of the project.
- `protobuf/`: Protobuf's messages.
- `debezium/`: changes of a database's rows.
"""
