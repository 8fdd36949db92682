"""A broker with TLS that admits only known users, and allows only what its access rules permit.

It is the embedded broker's program and settings, with its own listeners: `sasl` for users, `ssl`
for client certificates, `expired` with an expired certificate, `plain` without TLS.
"""

from __future__ import annotations

import re
import socket
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from certificates import Authority
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from identity_provider import CLIENT, IdentityProvider

from kappa.base.errors import AccessRefused
from kappa.base.java.jars import Jars
from kappa.base.java.java import Java
from kappa.base.process import start_tied
from kappa.kafka.broker.broker import HOST, java_text, log4j2_properties, server_properties
from kappa.kafka.client import Log

ADMIN, ADMIN_PASSWORD = "admin", "admin-5f1d"
_CLUSTER_ID = "a2FwcGEta2FwcGEta2FwcB"
_START_SECONDS = 120.0
_LOGIN = "org.apache.kafka.common.security"
AnyRule = TypeVar("AnyRule", AclBinding, AclBindingFilter)


class SecuredBroker:
    """A real broker with SASL, TLS and access rules."""

    def __init__(self, root: Path, jars: Jars, java: Java) -> None:
        self.root = root
        self.authority = Authority(root / "authority")
        self.provider = IdentityProvider(root)
        names = ("controller", "sasl", "ssl", "expired", "plain")
        self._ports = dict(zip(names, _ports(5), strict=True))
        settings = root / "server.properties"
        settings.write_bytes(java_text(self._settings(root)))
        (root / "log4j2.properties").write_bytes(java_text(log4j2_properties(root / "broker.log")))
        command = [
            *(java.command, "-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
            f"-Dlog4j2.configurationFile={root / 'log4j2.properties'}",
            f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self.provider.keys_url}",
            *("-Djava.net.preferIPv4Stack=true", "-cp", ":".join(map(str, jars.broker))),
        ]
        subprocess.run(
            [*command, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(settings)],
            check=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )
        with (root / "broker.out").open("ab") as output:
            self._process = start_tied([*command, "kafka.Kafka", str(settings)], output=output)
        self.log = Log(self.at("sasl"), self.options(ADMIN, ADMIN_PASSWORD, "PLAIN"))
        options = self.options(ADMIN, ADMIN_PASSWORD, "PLAIN")
        self.admin = AdminClient({"bootstrap.servers": self.at("sasl"), **options, "log_level": 0})
        deadline = time.monotonic() + _START_SECONDS
        while not self._is_ready():
            if time.monotonic() > deadline or self._process.poll() is not None:
                self.close()
                raise AssertionError((root / "broker.out").read_text() or "it does not answer")

    def _is_ready(self) -> bool:
        try:
            return self.log.wait_until_ready(1.0)
        except AccessRefused:
            # Its port is open before it knows its users.
            return False

    def at(self, listener: str) -> str:
        """Returns the address of a listener."""
        return f"{HOST}:{self._ports[listener]}"

    def options(self, user: str, password: str, mechanism: str = "SCRAM-SHA-512") -> dict[str, Any]:
        """Returns librdkafka's options for a user."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority.ca),
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }

    def token_options(self, secret: str) -> dict[str, Any]:
        """Returns librdkafka's options for the client of tokens."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority.ca),
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": self.provider.token_url,
            "sasl.oauthbearer.client.id": CLIENT,
            "sasl.oauthbearer.client.secret": secret,
        }

    def add_user(self, user: str, password: str) -> None:
        """Makes a user, for both SCRAM mechanisms."""
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            credential = ScramCredentialInfo(mechanism, 4096)
            upsertion = UserScramCredentialUpsertion(user, credential, password.encode())
            for done in self.admin.alter_user_scram_credentials([upsertion]).values():
                done.result(20)

    def allow(self, user: str, rules: Iterable[tuple[str, str, str]]) -> None:
        """Allows operations to a user.

        A rule is the kind and name of a resource, and the operation.
        """
        bindings = [_rule(AclBinding, user, *rule) for rule in rules]
        for done in (self.admin.create_acls(bindings) if bindings else {}).values():
            done.result(20)

    def forbid(self, user: str, rules: Iterable[tuple[str, str, str]] | None = None) -> None:
        """Takes these rules of a user away, or all rules if none are given."""
        any_rule = (ResourceType.ANY, None, ResourcePatternType.ANY, f"User:{user}", None)
        wanted = [AclBindingFilter(*any_rule, AclOperation.ANY, AclPermissionType.ANY)]
        if rules is not None:
            wanted = [_rule(AclBindingFilter, user, *rule) for rule in rules]
        for done in self.admin.delete_acls(wanted).values():
            done.result(20)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self.provider.close()

    def _settings(self, root: Path) -> str:
        store = self.authority.store("server")
        expired = self.authority.store("old-server", expired=True)
        users = f'user_{ADMIN}="{ADMIN_PASSWORD}" user_plainuser="plain-pw"'
        plain = (
            f'{_LOGIN}.plain.PlainLoginModule required username="{ADMIN}" '
            f'password="{ADMIN_PASSWORD}" {users};'
        )
        names = {"sasl": "SASL_SSL", "ssl": "SSL", "expired": "SASL_SSL", "plain": "PLAINTEXT"}
        listeners = ",".join(f"{name.upper()}://{self.at(name)}" for name in names)
        added = {
            "listeners": f"{listeners},CONTROLLER://{self.at('controller')}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": ",".join(
                [
                    *(f"{name.upper()}:{kind}" for name, kind in names.items()),
                    "CONTROLLER:SASL_PLAINTEXT",
                ]
            ),
            "inter.broker.listener.name": "SASL",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256,PLAIN,OAUTHBEARER",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.ca),
            "listener.name.expired.ssl.keystore.location": str(expired),
            "listener.name.ssl.ssl.client.auth": "required",
            "listener.name.ssl.ssl.principal.mapping.rules": "RULE:^CN=(.*?)(,.*)?$/$1/,DEFAULT",
            "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.controller.plain.sasl.jaas.config": plain,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "false",
            "super.users": f"User:{ADMIN}",
        }
        for name in ("sasl", "expired"):
            scram = f"{_LOGIN}.scram.ScramLoginModule required;"
            bearer = f"listener.name.{name}.oauthbearer.sasl."
            added |= {
                f"listener.name.{name}.plain.sasl.jaas.config": plain,
                f"listener.name.{name}.scram-sha-512.sasl.jaas.config": scram,
                f"listener.name.{name}.scram-sha-256.sasl.jaas.config": scram,
                f"{bearer}jaas.config": f"{_LOGIN}.oauthbearer.OAuthBearerLoginModule required;",
                f"{bearer}server.callback.handler.class": (
                    f"{_LOGIN}.oauthbearer.OAuthBearerValidatorCallbackHandler"
                ),
                f"{bearer}oauthbearer.jwks.endpoint.url": self.provider.keys_url,
                f"{bearer}oauthbearer.expected.audience": "kafka",
                f"{bearer}oauthbearer.expected.issuer": self.provider.url,
            }
        own = server_properties(root / "data", 1, self._ports["controller"], syncs=False)
        # Java takes the last of two equal names.
        return own + "".join(f"{name}={value}\n" for name, value in added.items())


def _rule(kind_of_rule: type[AnyRule], user: str, kind: str, name: str, operation: str) -> AnyRule:
    kinds = {
        "topic": ResourceType.TOPIC,
        "group": ResourceType.GROUP,
        "transactional-id": ResourceType.TRANSACTIONAL_ID,
        "cluster": ResourceType.BROKER,
    }
    return kind_of_rule(
        kinds[kind],
        "kafka-cluster" if kind == "cluster" else name,
        ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        # Kafka's names are `DescribeConfigs`, and Python's of it DESCRIBE_CONFIGS.
        AclOperation[re.sub(r"(?<=[a-z])(?=[A-Z])", "_", operation).upper()],
        AclPermissionType.ALLOW,
    )


def _ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    try:
        for each in held:
            each.bind((HOST, 0))
        return [int(each.getsockname()[1]) for each in held]
    finally:
        for each in held:
            each.close()
