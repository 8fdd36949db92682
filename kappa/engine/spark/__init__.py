"""Spark sessions: how a JVM is started, and what Spark's plans show of a function.

This package knows no slice and no table. Read in this order:

- `session.py`: the session of this process and the session's JVM. The only door to SparkSession.
- `running.py`: orders to a running session, beside the session's work.
- `leg_session.py`: the session of a leg of a job, which starts while the job does other things.
- `jvm.py`, `spark_settings.py`: the JVM's command line, and Spark's settings.
- `workers.py`: the start of Spark's Python workers, and the modules that workers import.
- `cds.py`: the class archives of a quick start; `recording.py` lists the archived classes.
- `function_plan.py`: the parts of a plan that look beyond a row, or change from run to run, and the
  fields from which a plan computes each column.
- `compiled.py`: Java sources of ours, compiled in a session's JVM.
- `s3a.py`: Spark's name for a file of a bucket, settings for buckets, and the store of Delta's
  logs.

On a cluster the driver is still the job, and only the driver commits; tasks elsewhere write files
that nothing refers to yet:

- `cluster.py`: a cluster and Spark's settings for a session on a cluster, also on Hadoop's YARN;
  the checks that the master answers, and that the cluster gives an executor
- `shipped.py`: the files of this machine that workers need: the build's code, compiled loops
"""

__all__ = ["cds", "cluster", "session"]
