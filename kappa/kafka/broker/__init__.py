"""The embedded broker: a real Apache Kafka, as a child process with its data below the root.

Its records are read and written with the clients in kappa/kafka, like the records of any cluster.
"""

__all__ = ["broker"]
