"""The courier: one process that sends what is served out, by sinks and alerts.

It follows what SERVES, by the journal and birth certificates, and runs no user's code: so a
candidate sends nothing. In reading order:

- outlet.py: the seam: one sink or alert at work, and the births that declare some
- courier.py: the program: a thread for each outlet that is served
- alert_outlet.py: one alert at work: the steps of its delivery, while it is served
- sink_position.py: the place of a sink in the changes of its table, as its topic has it
- sink_lease.py: what a sink's position needs, kept while no courier runs
- sink_topic.py: the topic, made as it has to be
- resync.py: what a topic has, compared with what is served
- away.py: a broker that is away while a transaction waits for it
- sink_outlet.py: the delivery of one sink: each change set one transaction
- sink_state.py: how far each sink is, as the courier writes it down
- sink_status.py: the sinks that are served, for people and machines
"""
