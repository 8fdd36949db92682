"""Java on this machine, and the jars of the broker and of Spark.

This package starts no JVM, except to run Ivy, to read Java's version, and to create a class
archive. Read the modules in this order:

- java: finds Java, and refuses a version that Spark cannot use
- jars: the jars that jars.lock lists; they are downloaded once per user, and checked against
  their SHA-256
- class_archive: creates and finds a JVM's class archive, with which JVMs start faster
"""

__all__ = ["class_archive", "jars", "java"]
