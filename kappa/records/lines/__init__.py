"""Kafka records as lines of text, for `kappa produce` and for exported rejects.

A line that already is a record is sent unchanged, whether or not its event is valid. An event that
Kappa creates from JSON or from a row is always valid. Read the modules in this order:

- produce.py: sends records made from lines, envelopes or events
- form.py: the names of the forms of a file of events
- input_events.py: reads the events in a JSON, CSV or Parquet file
- events.py: creates an event in its topic's format
- envelope.py: parses a line to a whole record, and writes a record as a line
- parquet.py: writes records to a Parquet file and reads them; reads the rows of any
  Parquet file
"""

__all__ = ["envelope", "form", "input_events", "parquet", "produce"]
