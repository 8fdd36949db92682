"""The processes of a run: commands, child processes, and all their descendants.

This package starts, watches and ends processes. It does not depend on the events or the queries.
Read the modules in this order:

- prompt: the `kappa` command as a user types it, displayed and run
- child: a child process that prints lines of JSON and exits when its standard input is closed
- end_of_input: the code in the child that detects the end of its standard input
- family: every process that descends from a run, identified by an environment variable
- watch: a thread that observes the family's memory, and each build's progress
"""
