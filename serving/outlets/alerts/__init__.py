"""Alerts: a message for each row that enters, changes in or leaves a served table.

An alert follows what serves, so candidates are mute, and a switch is one more change set. Messages
are delivered at least once, in the order of each key's changes. In reading order:

- message.py: one message, and the messages of a change set
- outbox.py: an alert's documents: outbox, progress, dead letters, and the messages on the page
- channels.py: the ways to a receiver: a signed POST, a command, Kappa's own page
- delivery.py: the delivery of one alert, step by step, while a serving build declares the alert
"""
