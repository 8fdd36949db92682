"""The version of a pipeline's code: its sources, reach, fingerprint and snapshot.

This package runs the user's files, but no Spark: a child process does that. It reads no topic and
no table. Read it in this order:

- sources.py: which file of a project a module name means.
- imported.py: what each import of a module means.
- normal_form.py: a statement without what decides no row: docstrings, layout, annotations.
- effects.py: whether a statement does something on mere import.
- scan.py: takes one module apart into statements, names and imports.
- reach.py: walks from a pipeline's function through all code that decides its rows.
- importer.py: imports a project's modules from one folder, the working tree or a snapshot.
- project.py: loads the pipelines that a project declares.
- ddl.py: reads the types of UDFs without a Spark session.
- semantics.py: the number for what Kappa itself means by a record and a fold.
- fingerprint.py: hashes all of these, and the declarations, into a version.
- declaration.py: a pipeline's declarations as lines, for a diff.
- rows_version.py: hashes what of them decides rows: all but views and checks.
- artifact.py: the code snapshot that a build runs from.
- task.py: a task for a process that has Spark ready, and where such a process is found.
- spark_child.py: a child process with Spark that answers requests.
- outputs.py: the columns that a function returns, learned by such a child.
"""
