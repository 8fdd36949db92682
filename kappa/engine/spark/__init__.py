"""Spark sessions, their JVMs and workers, and the checks of a function in Spark's plans.

This package does not depend on slices and tables. Read the modules in this order:

- `session.py`: the session of this process and its JVM. No other module creates a
  SparkSession.
- `session_control.py`: activates a running session, silences its streams, observes its
  progress.
- `leg_session.py`: the session of a leg of a job, which starts in the background.
- `jvm.py`, `spark_settings.py`: the JVM's command line, and Spark's settings.
- `workers.py`: the start of Spark's Python workers, and the modules that workers
  import.
- `cds.py`: files of preloaded classes (class archives) for a quick start of a JVM;
  `class_list_run.py` lists the classes.
- `function_plan.py`: finds the parts of a plan that compute a row from other rows, or
  whose values change from run to run, and the fields from which a plan computes each
  column.
- `java_compiler.py`: Kappa's own Java sources, compiled in the JVM of a session.
- `s3a.py`: Spark's names of files in a bucket, settings for buckets, and the Java class
  that stores Delta's logs.

On a cluster, the driver is still the job, and only the driver commits. Tasks on other machines
write files, which no table contains before the commit:

- `cluster.py`: a cluster, and Spark's settings for a session on a cluster, also on
  Hadoop's YARN; checks that the master answers, and that the cluster provides an
  executor
- `worker_archive.py`: the files of this machine that workers need: the build's code,
  and compiled loops
"""

__all__ = ["cds", "cluster", "session"]
