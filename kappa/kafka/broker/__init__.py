"""The embedded broker: a real Apache Kafka, as a child process with data below the root.

Records are read and written through kappa/kafka, like the records of any cluster. Read the files in
this order:

- broker: the process, from start to end
- last_run: the process and the ports of the last run
- properties: the files of Kafka's settings and of log4j's, as Java reads files
- sizes: the sizes of the broker's files
"""

__all__ = ["broker", "last_run", "properties", "sizes"]
