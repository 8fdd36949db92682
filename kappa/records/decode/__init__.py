"""Decodes raw records, by the only definition of validity.

This definition is kappa/records/record.py. The modules here do not read the topics' logs, and do
not depend on slices. Read the modules in this order:

- raw_records.py: raw records, which are unchanged records of the log
- outcome.py: the fates of records (decoded, rejected, duplicate and so on), the columns
  of decoded records, and the counts per partition
- decoder.py: the decoder of a topic, batch by batch: log time, lateness, duplicates
- decode.py: decoding in this process
- parquet_decoder.py: decoding on Spark workers into Parquet files: the range that each
  task reads, and the combination of the tasks' results
- identity_file.py: a partition's accepted identities, stored in a file

Compiled code decodes whole batches of plain records, many times as fast as the reader of single
records. A plain record has a simple form that the compiled code can check. Compiled code decodes
only records that it proves to be valid. The reader of single records decodes all other records:

- plain_reader.py: the base class of the readers that use compiled code; it decides
  whether compiled code is worth its cost
- readers.py: the choice of a topic's reader, and keys with a format of their own
- plain_events.py: plain JSON events, by the layouts in which they are written
- find_values.py, find_loops.py: the search for the values of a layout, and the compiled
  loops
- frames.py: the bytes that a schema registry's serializers put before messages
- plain_avro.py, plain_protobuf.py: plain Avro and Protobuf records, with the compiled
  loops
- binary_columns.py: Arrow columns of the values that the loops for binary records find
"""

__all__ = ["decode", "decoder", "identity_file", "outcome", "parquet_decoder", "raw_records"]
