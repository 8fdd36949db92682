"""The decoding of raw records, by the only definition of validity.

That definition is kappa/records/record.py. The modules here read no log and know no slice. Read the
modules in this order:

- `raw.py`: raw records, as the log gives them.
- `fate.py`: the fates of records, the columns of decoded records, the counts per partition.
- `decoder.py`: the decoder of a topic, batch by batch: log time, lateness, duplicates.
- `decode.py`: decoding in this process.
- `to_files.py`: decoding in Spark's workers, into Parquet files: the range that each task reads,
  and how the results are joined.
- `remembered.py`: a partition's memory of identities as a file.

Compiled code decodes whole batches of plain records, many times as fast as the reader of single
records. It takes only records that are proven valid. All others are left to the reader of records:

- `plain_reader.py`: a reader, and whether a quick way is worth its cost.
- `readers.py`: the choice of a topic's reader; keys in a format of their own.
- `plain_events.py`: plain events of JSON, by the layouts in which they are written.
- `find_values.py`, `find_loops.py`: where the values of a layout are, and the compiled loops.
- `frames.py`: the bytes that a schema registry's serializers put before messages.
- `plain_avro.py`, `plain_protobuf.py`: the same for binary records, with the compiled loops.
- `binary_columns.py`: columns of the values that the loops for binary records find.
"""

__all__ = ["decode", "decoder", "fate", "raw", "remembered", "to_files"]
