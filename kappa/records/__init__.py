"""Valid records and their meaning in a partition: bytes to events, and back.

Read the modules in this order:

    record       the only definition of validity, for every path that decodes
    keys         the Kafka key: the key column's value
    lateness     records that are too late
    identity     records that are duplicates
    redrive      records that replace a rejected record
    tombstones   how long a deletion can be read
    decode/      raw records to decoded records, singly or in whole batches
    lines/       records as lines of text, for `kappa produce` and for exported rejects
"""

__all__ = ["identity", "keys", "record", "redrive", "tombstones"]
