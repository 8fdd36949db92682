"""The version of a pipeline's code: sources, reached code, fingerprint and snapshot.

This package runs the user's files. It uses Spark only in a child process. It reads no topic and no
table. Read the files in this order:

- sources.py: the file of a project for the name of a module.
- scan.py: takes a module apart into imports and statements, without the parts that decide no row.
- reach.py: follows all code that decides a pipeline's rows, from the pipeline's function on.
- importer.py: imports a project's modules from one folder: the working tree or a snapshot.
- names.py: reads the names that a project's files declare, without running the files.
- project.py: loads the pipelines that a project declares.
- mistakes.py: finds all mistakes in the declarations of a file that cannot be imported.
- misuse_errors.py: turns Python's errors in such a file into errors with a correction.
- fingerprint.py: hashes the code and the declarations into a version, and a rows version.
- code_snapshot.py: the code snapshot that a build runs from.
- task.py: a task for a process that has Spark ready, and the way to find the process.
- spark_child.py: a child process with Spark that answers requests.
- new_project.py: writes a new project from a template.
"""

__all__ = [
    "code_snapshot",
    "fingerprint",
    "importer",
    "names",
    "new_project",
    "project",
    "reach",
    "scan",
    "sources",
    "spark_child",
    "task",
]
