"""Functions for the terminal of a command: options, output, and following a rollout.

All commands use this package. The package makes no decisions. Read the modules in this order:

- options: options and arguments of several commands, each declared once
- help: the help of commands and groups
- output: answers on stdout; messages and questions on stderr
- colour: colours of states, diffs, warnings and errors
- lines: reads and writes files of lines, or stdin and stdout
- moment: formats and parses the times of snapshots, and waits until readers see a write
- progress: the progress line of a long step, or the progress bar of a step that counts records
- follow: shows the progress of rollouts until they end
"""
