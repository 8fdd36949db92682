"""Kafka: the only door to confluent_kafka, and to a schema registry.

This package knows offsets and bytes. No module may decode an event, or wait without a limit. Read
the files in this order:

- client: the log of a cluster, its topics, settings and offsets; all other packages use it
- producer: records that are sent and acknowledged; live_producer: records of many senders at once
- transactions: records and a position that are sent together, or not at all
- reader: small ranges, record by record
- bulk: large ranges, in columns; no message becomes an object
- log_end: whether the log's end is still the end that was read
- headers: the names and values beside a record
- consumers: the settings and errors that both readers share
- client_options: `[kafka.auth]` as librdkafka's options, with the content of files
- java_options: the same for Kafka's Java client, with secrets in the JVM's environment alone
- acl: the rules that a client needs, and the sentence for a missing rule
- answers: the meaning of the broker's answers and errors; the nature of a listener that gives none
- registry: the requests to a schema registry over HTTP, in Confluent's dialect
- stored_schemas: the schemas of ids, asked once and kept in the root
- broker/: the embedded broker, a child process
"""

__all__ = [
    "acl",
    "answers",
    "client",
    "client_options",
    "headers",
    "java_options",
    "live_producer",
    "log_end",
    "producer",
    "reader",
    "registry",
    "stored_schemas",
    "transactions",
]
