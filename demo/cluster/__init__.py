"""The servers of `make cluster`: brokers, Spark, and S3, each a real process on 127.0.0.1.

The tests start the same servers. This package does not depend on the events or the story. Read the
modules in this order:

- brokers: three Kafka brokers
- spark: Spark's master and its workers; if possible, some folders are hidden from the workers
- object_store: the S3 server
- answering: checks whether a server answers over HTTP
- servers: all servers together, and the settings of a project that uses them
"""
