"""Types and values, and how values are parsed from text or rejected.

This package does no I/O, and does not depend on topics or records. Read the package in this order:

    columns          types and columns, and how DDL declares them
    value            the valid values of each type
    reason           the reasons why a record is not valid
    json_text        parses bytes to the fields of an event
    csv_text         parses bytes to the rows of a file
    json_schema      parses an event that a JSON Schema declares; `schema_rules` checks events
    exact_sql        SQL that converts DuckDB's values for each output without loss
    arrow            Arrow's types of columns, and arrays made from lengths
    tally            counts of the offsets that were read, by outcome
"""

__all__ = [
    "arrow",
    "columns",
    "csv_text",
    "exact_sql",
    "json_schema",
    "json_text",
    "reason",
    "schema_rules",
    "tally",
    "value",
]
