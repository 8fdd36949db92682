"""The decoding of raw records, by the only definition of validity.

That definition is kappa/records/record.py. The modules here read no log and know no slice. Read the
modules in this order:

- `raw.py`: raw records, as the log gives them.
- `fate.py`: the fates of records, the columns of decoded records, the counts per partition.
- `decoder.py`: the decoder of a topic, batch by batch: log time, lateness, duplicates.
- `originals.py`: which records of a batch are redriven.
- `assemble.py`: the columns of a decoded batch, assembled from parts.
- `decode.py`: decoding in this process.
- `to_files.py`: decoding in Spark's workers, into Parquet files.
- `shares.py`: the range that each task of these workers reads, and how the results are joined.
- `remembered.py`: a partition's memory of identities as a file.

Compiled code decodes whole batches of plain records, many times as fast as the reader of single
records. It takes only records that are proven valid. All others are left to the reader of records:

- `plain_reader.py`, `readers.py`: the protocol of a reader, and the choice of a topic's reader.
- `plain_events.py`: plain events of JSON.
- `tried.py`: whether a quick way is worth its cost.
- `layout.py`: how plain events of one kind are written.
- `find_values.py`, `find_loops.py`: where the values of a layout are, and the compiled loops.
- `typed_texts.py`: values that DuckDB makes of texts.
- `frames.py`: the bytes that a schema registry's serializers put before messages.
- `plain_avro.py`, `plain_protobuf.py`: the same for binary records; the loops are in
  kappa/declare/formats.
- `formatted_keys.py`: keys in a format of their own.
- `binary_columns.py`: columns of the values that the loops for binary records find.
"""

__all__ = ["decode", "decoder", "fate", "raw", "remembered", "shares", "to_files"]
