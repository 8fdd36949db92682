"""From raw records to decoded records, by the one definition of a valid record.

That definition is kappa/records. The room reads no log and knows no slice. Read in this order:

- `raw.py`: raw records, as the log gives them.
- `fate.py`: what becomes of a record, the columns of decoded records, the counts per partition.
- `decoder.py`: the decoder of a topic, batch by batch: log time, lateness, duplicates.
- `originals.py`: which records of a batch are redriven.
- `assemble.py`: the columns of a decoded batch, made of its parts.
- `decode.py`: decoding in this process.
- `to_files.py`: decoding in Spark's workers, into Parquet files.
- `shares.py`: what each of these workers' tasks reads, and what joins what they wrote.
- `remembered.py`: a partition's memory of identities as a file.
- `plain`: whole batches of plain records, decoded by compiled code.
"""
