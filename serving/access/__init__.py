"""Access: the clients on the network, and their rights.

Every server on the network uses this package to decide what a client may do. The package does not
depend on routes. Read in this order:

- roles.py: acts, roles, identities, and `may`, the only function that decides whether a client may
  do an act
- tokens.py: named tokens, stored as hashes in a file that commands change; the minimum length of a
  token that a user has chosen
- oidc.py: people, identified by the tokens of an issuer (OpenID Connect)
- accounts.py: all clients that a server knows
"""

__all__ = ["accounts", "oidc", "roles", "tokens"]
