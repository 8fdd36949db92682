"""The terminal of a command: options, output, and the following of a rollout.

All commands share this package, which decides nothing. Read the modules in this order:

options    options and arguments of several commands, each declared once
help       the help of commands and groups
output     stdout for the answer, stderr for talk and questions
lines      files of lines, or stdin and stdout
moment     a snapshot's moment, as people write and read it; waiting until readers see a write
moving     the line of a step that takes a while, or the bar of a step that counts
follow     progress of rollouts, shown to the end
"""
