"""Java: the one on this machine, and the jars of the broker and of Spark.

This package starts no JVM but that of Ivy. Read in this order:

- java: finds Java, and refuses a version that Spark cannot use
- jars_lock: what a line of jars.lock says
- jars: the jars that jars.lock names, fetched once per user and held to their SHA-256
- class_archive: a JVM's class archive, for its quick start: where it is, and how it is made
"""

__all__ = ["class_archive", "jars", "jars_lock", "java"]
