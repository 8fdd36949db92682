"""Java on this machine, and the jars of the broker and of Spark.

This package starts no JVM but that of Ivy. Read the modules in this order:

- java: finds Java, and refuses a version that Spark cannot use
- jars: the jars that jars.lock names, fetched once per user and checked against their SHA-256
- class_archive: the place and the making of a JVM's class archive, for quick starts
"""

__all__ = ["class_archive", "jars", "java"]
