"""From raw records to decoded records, by the one definition of a valid record.

That definition is kappa/records/record.py. No log is read here, and no slice is known. Read in this
order:

- `raw.py`: raw records, as the log gives them.
- `fate.py`: what becomes of a record, the columns of decoded records, the counts per partition.
- `decoder.py`: the decoder of a topic, batch by batch: log time, lateness, duplicates.
- `originals.py`: which records of a batch are redriven.
- `assemble.py`: the columns of a decoded batch, made of its parts.
- `decode.py`: decoding in this process.
- `to_files.py`: decoding in Spark's workers, into Parquet files.
- `shares.py`: what each of these workers' tasks reads, and what joins what they wrote.
- `remembered.py`: a partition's memory of identities as a file.

Whole batches of plain records are decoded by compiled code, many times as fast as singly. Only what
is proven valid is taken. All other records are left to the reader of records:

- `plain_reader.py`, `readers.py`: what a reader answers, and which one a topic has.
- `plain_events.py`: plain events of JSON.
- `tried.py`: whether a quick way pays.
- `layout.py`: how plain events of one kind are written.
- `find_values.py`, `find_loops.py`: where the values of a layout are, and the compiled loops.
- `typed_texts.py`: values that DuckDB makes of their texts.
- `frames.py`: what a schema registry's serializers put before messages.
- `plain_avro.py`, `plain_protobuf.py`: the same for binary records; their loops are in
  kappa/declare/formats.
- `formatted_keys.py`: keys in a format of their own.
- `binary_columns.py`: columns of the values that those loops find.
"""

__all__ = ["decode", "decoder", "fate", "raw", "remembered", "shares", "to_files"]
