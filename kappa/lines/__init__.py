"""Records of Kafka as lines of text: what `kappa produce` reads, and how rejects are exported.

It decides nothing about events: a line is sent whether or not its event is valid.
Read in this order:

- produce: lines that are sent
- envelope: a line read as a whole record
- written: a record written as a line
"""
