"""The version of a pipeline's code: sources, reached code, fingerprint and code snapshot.

This package runs the user's files. Only its child processes use Spark. The package reads no topic
and no table. Read the modules in this order:

- sources.py: finds the file of a project's module by the module's name.
- scan.py: splits a module into imports and statements, without the parts that do not affect rows.
- reach.py: finds all code that affects a pipeline's rows, beginning with the pipeline's function.
- importer.py: imports a project's modules from the working tree or from a build's code snapshot.
- names.py: reads the names that a project's files declare, without running the files.
- project.py: loads the pipelines that a project declares.
- mistakes.py: finds all mistakes in the declarations of a file that cannot be imported.
- misuse_errors.py: converts Python's errors in such a file to errors with a correction.
- fingerprint.py: hashes the code and the declarations into a version, and a rows version.
- code_snapshot.py: the code snapshot from which a build runs.
- task.py: a task for a spare (a process with Spark), and the sockets at which spares listen.
- spark_child.py: a child process with Spark that answers requests about pipelines.
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
