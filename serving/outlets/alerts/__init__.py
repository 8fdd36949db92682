"""Alerts: a message for each row that enters, changes in or leaves a served table.

An alert follows what serves, so candidates are mute, and a switch is one more change set. Messages
are delivered at least once, in the order of each key's changes. In reading order:

- message.py: one message, and the messages of a change set
- outbox.py: an alert's documents: its outbox, its progress, its dead letters
- patience.py: how long to wait for the next attempt, and when a message is given up
- channel.py: a way to a receiver, and what an attempt came to
- signature.py: the signature of a message, as Standard Webhooks has it
- webhook.py: the channel of URLs
- program.py: the channel of commands
- shown.py: the channel of Kappa's own page
- channels.py: the channel of an alert, by its address and the settings
- again.py: the wish to send dead letters again
- delivery.py: the delivery of one alert, step by step
"""
