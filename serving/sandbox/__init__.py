"""SQL of strangers, each query in a process of its own, which sees the snapshot's tables alone.

- question.py, sandbox.py: what is asked, and who answers
- children.py, nursery.py, frames.py: processes, where they are made, how they talk
- sandboxed.py, pieces.py, confine.py: inside the process: the query, its answer, its limits
"""
