"""Valid records, and their meaning in their partition: bytes to events, and back.

Read it in this order:

    record       the one definition of validity, for every path that decodes
    keys         the Kafka key: the key column's value
    lateness     records that are too late
    identity     records that are duplicates
    redrive      records that stand for a rejected one
    tombstones   how long a deletion can be heard of
    decode/      raw records to decoded records, one by one or whole batches
    lines/       records as lines of text, for `kappa produce` and for exported rejects
"""

__all__ = ["identity", "keys", "record", "redrive", "tombstones"]
