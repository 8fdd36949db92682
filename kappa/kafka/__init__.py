"""Clients of Kafka and of a schema registry. Only this package uses confluent_kafka.

This package handles offsets and bytes. Its modules decode no event, and never wait without a limit.
Read the files in this order:

- client: a cluster's topics, settings, offsets and records; all other packages use this client
- producer: sends records and waits for acknowledgements; live_producer: for many senders at once
- transactions: sends records together with a position, in one transaction
- reader: reads small ranges, record by record
- bulk_reader: reads large ranges into columns, without creating an object per message
- log_end: checks that a topic's log still contains the last records that were read from it
- headers: the names and values of a record's headers
- consumers: the settings and errors that both readers share
- client_options: converts `[kafka.auth]` to librdkafka's options
- java_options: converts librdkafka's options to those of Kafka's Java client; secrets are only in
  the JVM's environment
- acl: the rules that a client needs, and the error for a missing rule
- broker_requests: waits for a broker's answers, converts its errors, and finds the reason why a
  listener does not answer
- registry: the requests to a schema registry over HTTP, with Confluent's API
- stored_schemas: schemas by id, which are requested once and then stored in the root
- broker/: the embedded broker, which runs in a child process
"""

__all__ = [
    "acl",
    "broker_requests",
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
