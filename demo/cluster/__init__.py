"""The servers of `make cluster`: brokers, Spark, and S3, each a real process on 127.0.0.1.

The tests start the same ones. It knows neither the events nor the story. Read it in this order:

- brokers: three Kafka brokers
- spark: Spark's master and its workers, isolated from this machine's folders if that can be
- object_store: the S3 server; answering: whether it answers
- servers: all of them together, and the settings of a project that uses them
"""
