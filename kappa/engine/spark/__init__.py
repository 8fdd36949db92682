"""Spark sessions: how a JVM is started, and what Spark's plans show of a function.

The room knows no slices and no tables. Read in this order:

- `session.py`: the session of this process and its JVM. The only door to SparkSession.
- `running.py`: orders to a session that runs, beside its work.
- `leg_session.py`: the session of one leg of a job, which starts while the job does other things.
- `jvm.py`, `spark_settings.py`: the JVM's command line, and Spark's settings.
- `workers.py`: where Spark's Python workers start, and which modules they import.
- `cluster`: a room of its own, for sessions whose tasks run on a cluster.
- `bucket`: another one, for tables of a root in a bucket.
- `cds.py`: the class archives of a quick start; `recording.py` lists what they contain.
- `rowlocal.py`: what in a plan looks beyond a row, or changes from run to run.
- `used.py`: which columns of its topics a function uses.
- `united.py`: the rows of several topics as one frame.
"""
