"""The embedded broker: one real Apache Kafka, as a child process with data below the root.

Its records are read and written through kappa/kafka, like the records of any cluster. Read the
files in this order:

- broker: the process, from its start to its end
- last_run: the process and the ports of the last run
- properties: Kafka's settings and its log, as Java reads them
- sizes: the sizes of its files
"""

__all__ = ["broker", "last_run", "properties", "sizes"]
