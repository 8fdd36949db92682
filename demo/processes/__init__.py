"""The processes of a run: commands, children, and all that descend from them.

It starts, watches and ends them. It knows neither the events nor the queries. Read it in this
order:

- prompt: the `kappa` command as a user types it, shown and run
- child: a child process that prints lines of JSON and ends with its standard input
- end_of_input: the same end, as the child itself notices it
- family: every process that descends from a run, by a mark in the environment
- watch: a thread that watches the family's memory, and each build's progress
"""
