"""Records of Kafka as lines of text, for `kappa produce` and for exported rejects.

This room decides nothing about events: a line is sent whether or not its event is valid.
Read it in this order:

- produce.py: sends lines, each an event or an envelope.
- envelope.py: reads a line as a whole record.
- written.py: writes a record as a line.
- parquet.py: records as a Parquet file, and back.
"""
