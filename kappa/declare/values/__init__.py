"""Types and values, and how values are read from text or refused. Pure: no topics, no records.

Read the package in this order:

    columns          types and columns, and how DDL declares them
    value            valid values of each type
    reason           why a record is not valid
    json_text        bytes to the fields of an event
    csv_text         bytes to the rows of a file
    json_schema      an event that a JSON Schema declares; `schema_rules` checks events
    exact_sql        SQL that gives DuckDB's values to each output without a loss
    arrow            Arrow's types of columns, and arrays made from lengths
    tally            counts of what became of the offsets that were read
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
