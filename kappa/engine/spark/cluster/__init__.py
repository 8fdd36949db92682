"""Legs on a Spark cluster: what differs from a session on this machine.

The driver is the job as ever, and the only one who commits; tasks elsewhere write files that
nothing refers to yet. Read in this order:

- `cluster.py`: a cluster and Spark's settings for it
- `yarn.py`: what differs on Hadoop's YARN
- `reached.py`: whether its master answers, and whether it gives an executor
- `shipped.py`: what workers need of this machine: the build's code, compiled loops
"""
