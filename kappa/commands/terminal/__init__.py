"""The terminal of a command: what is typed, what is printed, and how a rollout is followed.

Commands share this package, and it decides nothing. Read in this order:

options    options and arguments of several commands, each declared once
output     stdout for the answer, stderr for talk and questions
lines      files of lines, or stdin and stdout
moving     the line of a step that takes a while
bar        the bar of a step that counts, with its rate
begin      from a plan to its rollouts
follow     progress of rollouts, shown to the end
written    waiting until readers see what was written
"""
