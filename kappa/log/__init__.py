"""Kafka: the only door to confluent_kafka, and the embedded broker."""
