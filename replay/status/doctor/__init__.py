"""The doctor of a root: damage, what follows from it, and what can be set aside.

It lists what a project needs of its cluster, too. It looks at records and at the files that
builds and archives need; it reads no row. It moves what a person gives up, and deletes nothing.
Read in this order:

damage     one thing that is damaged
examine    the journal, the builds and their tables
scrub      each data file is read, and compared with its sum
risks      what the loss of one broker would take
acls       the rules of the cluster that a project needs
repair     what is given up is moved aside
"""
