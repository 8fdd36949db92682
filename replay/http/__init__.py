"""The API over HTTP: the documents of the commands' `-o json`, and the same intents.

Nothing is decided here, and a request holds up no rollout.

Read in this order:
api         the addresses, and what each answers
intent      what a client wants of rollouts: explained, then recorded
asked_once  an intent with a key is done once, however often it is sent
"""
