"""Kafka: the only door to confluent_kafka, and the embedded broker.

It knows offsets and bytes. It decodes no event, and nothing here waits for ever.
Read in this order:

- client: the log of a cluster, which all others use
- cluster: topics and their offsets
- producer: records that are sent and acknowledged
- reader: small ranges, record by record
- bulk: large ranges, in columns
- headers: the names and values beside a record
- consumers: what both readers share
- answers: what the broker's errors mean
- broker, sizes: the embedded broker, and its files
"""
