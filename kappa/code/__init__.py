"""The version of a pipeline's code: sources, reach, fingerprint and snapshot.

This package runs the user's files, but no Spark: a child process does that. The package reads no
topic and no table. Read the files in this order:

- sources.py: which file of a project a module name means.
- scan.py: takes a module apart into imports, and statements without parts that decide no row.
- reach.py: walks from a pipeline's function through all code that decides the pipeline's rows.
- importer.py: imports a project's modules from one folder, the working tree or a snapshot.
- names.py: reads the names that a project's files declare, without running the files.
- project.py: loads the pipelines that a project declares.
- mistakes.py: all mistakes in the declarations of a file that cannot be imported.
- misused.py: errors of Python in such a file, as errors that say what to write.
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
