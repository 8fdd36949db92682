"""Types and values, and how they are read from text or refused. Pure: no topics, no records.

Read it in this order:

    columns          types and columns; `tokens` are the words of their text
    value            what a valid value of each type is
    reason           why a record is not valid
    json_text        bytes to the fields of an event
    csv_text         bytes to the rows of a file
    json_schema      an event by a JSON Schema, as a `schema_place`; `schema_keywords` reads one
                     keyword, and `schema_rules` checks events
    exact_sql        DuckDB's values as SQL gives them to each output, none of them lost
    arrow, lengths   columns as Arrow has them, and arrays made from lengths
    some_value       values at random, for tests of pipelines
    tally            what became of the offsets that were read
"""
