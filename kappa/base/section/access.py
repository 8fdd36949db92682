"""The section `[access]`: who may do what over the network. Values."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from msgspec import field

from kappa.base.section.section import SECRET, Section


class Role(StrEnum):
    """A role of a token, a person or a group: `serving/access/roles.py` has what each may do."""

    READ = "read"
    COLLECT = "collect"
    STAGE = "stage"
    OPERATE = "operate"
    ADMIN = "admin"


Roles = Annotated[list[Role], "read, collect, stage, operate or admin; several in brackets"]
Tables = Annotated[
    list[str], "of the role read: the tables and views to read; none: all, and the platform's state"
]
Topics = Annotated[list[str], "of the role collect: the topics to send to; none: all collected"]


class GrantSettings(Section, frozen=True):
    """`[access.people.NAME]` and `[access.groups.NAME]`: the roles of a person or a group."""

    roles: Roles = field(default_factory=list)
    tables: Tables = field(default_factory=list)
    topics: Topics = field(default_factory=list)


class TokenSettings(Section, frozen=True):
    """`[access.tokens.NAME]`: a token with roles, for a place that has an environment only."""

    token: Annotated[
        str, "what a client sends with each request; from the environment alone", SECRET
    ] = ""
    roles: Roles = field(default_factory=list)
    tables: Tables = field(default_factory=list)
    topics: Topics = field(default_factory=list)


class OidcSettings(Section, frozen=True):
    """`[access.oidc]`: the issuer whose tokens identify people (OpenID Connect)."""

    issuer: Annotated[
        str, "the issuer's URL, as its tokens have it; nothing: people need tokens of Kappa"
    ] = ""
    audience: Annotated[str, "the audience that a token must name, such as the client's id"] = ""
    client: Annotated[
        str, "the client's id, by which people sign in on the page; nothing: by a token alone"
    ] = ""
    client_secret: Annotated[
        str, "the client's secret, if it has one; from the environment alone", SECRET
    ] = ""
    name: Annotated[str, "the claim that names a person"] = "email"
    groups: Annotated[str, "the claim that lists a person's groups"] = "groups"


class AccessSettings(Section, frozen=True):
    """`[access]`: who may do what over the network, beside the token of `[serve]`."""

    file: Annotated[
        Path | None,
        "the file of `kappa token`, read anew when it changes; none: access/tokens.json below the "
        "root, or below `local` if the root is in a bucket",
    ] = None
    tokens: Annotated[
        dict[str, TokenSettings],
        "by name: tokens that are given by the environment; others are made by kappa token add",
        # Tokens are among them.
        SECRET,
    ] = field(default_factory=dict)
    oidc: OidcSettings = OidcSettings()
    people: Annotated[
        dict[str, GrantSettings], "by the name that the issuer gives: the roles of a person"
    ] = field(default_factory=dict)
    groups: Annotated[
        dict[str, GrantSettings], "by the name that the issuer gives: the roles of a group"
    ] = field(default_factory=dict)
