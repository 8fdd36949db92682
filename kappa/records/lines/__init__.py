"""Records of Kafka as lines of text, for `kappa produce` and for exported rejects.

A line that is a record already is sent whether or not its event is valid. An event that is made
here, from JSON or a row, is valid. Read the modules in this order:

- produce.py: sends records from lines, from envelopes or from events.
- form.py: the forms of a file of events, by name.
- given.py: the events of a file of JSON, CSV or Parquet.
- events.py: makes an event in its topic's format.
- envelope.py: reads a line as a whole record, and writes a record as a line.
- parquet.py: records as a Parquet file, and back; the rows of any Parquet file.
"""

__all__ = ["envelope", "form", "given", "parquet", "produce"]
