"""The rules for valid records, and the conversion of records from bytes to events and back.

Read the modules in this order:

- record: the only definition of validity, for all code that decodes
- keys: the Kafka key, which contains the key column's value
- lateness: records that are too late
- identity: records that are duplicates
- redrive: records that replace a rejected record
- tombstones: the time for which a deletion can be read
- decode/: decodes raw records, one by one or in whole batches
- lines/: records as lines of text, for `kappa produce` and for exported rejects
"""

__all__ = ["identity", "keys", "record", "redrive", "tombstones"]
