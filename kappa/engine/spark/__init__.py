"""Spark sessions: how a JVM is started, and what Spark's plans show of a function.

No slice and no table is known here. Read in this order:

- `session.py`: the session of this process and its JVM. The only door to SparkSession.
- `running.py`: orders to a session that runs, beside its work.
- `leg_session.py`: the session of one leg of a job, which starts while the job does other things.
- `jvm.py`, `spark_settings.py`: the JVM's command line, and Spark's settings.
- `workers.py`: where Spark's Python workers start, and which modules they import.
- `cds.py`: the class archives of a quick start; `recording.py` lists what they contain.
- `rowlocal.py`: what in a plan looks beyond a row, or changes from run to run.
- `used.py`: which columns of its topics a function uses.
- `united.py`: the rows of several topics as one frame.
- `s3a.py`: Spark's name for a file of a bucket, its settings, and the store of Delta's logs.

On a cluster the driver is the job as ever, and the only one who commits; tasks elsewhere write
files that nothing refers to yet:

- `cluster.py`: a cluster and Spark's settings for it
- `yarn.py`: what differs on Hadoop's YARN
- `reached.py`: whether its master answers, and whether it gives an executor
- `shipped.py`: what workers need of this machine: the build's code, compiled loops
"""

__all__ = ["cds", "cluster"]
