"""Access to a cluster: who a client is, how it is let in, and why it is not.

Read its files in this order:

- client_options: `[kafka.auth]` as librdkafka's options, with what files have
- java_options: the same for Kafka's Java client, with secrets in its environment alone
- acl: the rules that a client needs, and the sentence for one that is missing
- probe: what a listener is, asked by a connection of our own
- answers: the meaning of the broker's answers and errors
"""
