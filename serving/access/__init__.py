"""Access: who asks over the network, and what each may do.

Every door of the network asks this package, and decides nothing itself. The package knows no
route. Read in this order:

- roles.py: acts, roles, identities, and `may`, the one function that decides
- tokens.py: tokens by name, hashed at rest, in a file that commands change; the least length of a
  token that somebody chose
- oidc.py: people, by the tokens of an issuer (OpenID Connect)
- accounts.py: all clients that a server knows
"""

__all__ = ["accounts", "oidc", "roles", "tokens"]
