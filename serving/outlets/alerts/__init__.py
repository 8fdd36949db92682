"""Alerts: a message for each changed row of a served table.

A row changes if it enters the table, gets other values, or leaves the table. An alert follows the
builds that serve, so a candidate sends nothing, and the rows that differ after a promote or an undo
are a change set like any other. Messages are delivered at least once, in the order of each key's
changes. Read in this order:

- message.py: a message, and the messages of a change set
- outbox.py: an alert's documents: outbox, progress, dead letters, and the messages on the page
- channels.py: the ways to reach a receiver: a signed POST, a command, Kappa's own page
- delivery.py: the delivery of an alert, step by step, while a serving build declares the alert
- notices.py: messages about the platform itself
"""

__all__ = ["channels", "delivery", "message", "notices", "outbox"]
