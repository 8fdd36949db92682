"""Kafka: the only door to confluent_kafka.

The room knows offsets and bytes. It may not decode an event, and never waits without a limit. Read
its files in this order:

- client: the log of a cluster, which all other rooms use
- cluster: topics and their offsets
- producer: records that are sent and acknowledged; live/: those of many senders at once
- transactions: records and a position that are sent all or none
- reader: small ranges, record by record
- bulk: large ranges, in columns; librdkafka, message_loops: how no message becomes an object
- log_end: whether the log's end is still the one that was read
- headers: the names and values beside a record
- consumers: the settings and errors that both readers share
- access/: how a client is let in, and the meaning of the broker's errors
- config/: the settings of topics
- replicas/: the brokers that a topic is kept by
"""
