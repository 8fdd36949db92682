"""The code of a project, read without running it: which statements decide a pipeline's rows.

This room runs nothing, and imports no module of the user. Read in this order:

- sources.py: which file of a project a module name means.
- imported.py: what each import of a module means.
- normal_form.py: a statement without what decides no row: docstrings, layout, annotations.
- effects.py: whether a statement does something on mere import.
- scan.py: takes one module apart into statements, names and imports.
- reach.py: walks from a pipeline's function through all code that decides its rows.
"""
