"""The options of Kafka's Java client, converted from options under librdkafka's or Java's names.

Spark stores options in its plans, and displays the plans. So the options do not contain secrets:
the secrets are in environment variables of the JVM, and the options contain the names of these
variables (Kafka's EnvVarConfigProvider).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

_PROVIDER = "org.apache.kafka.common.config.provider.EnvVarConfigProvider"
_MODULES = "org.apache.kafka.common.security"
# Settings that librdkafka and Kafka's Java client spell differently, with the same meaning.
_JAVA_NAMES = {
    "ssl.ca.location": "ssl.truststore.location",
    "sasl.mechanisms": "sasl.mechanism",
}
_TOKENS = "sasl.oauthbearer."
_SECRETS = {
    "sasl.jaas.config": "KAPPA_KAFKA_LOGIN",
    "ssl.keystore.key": "KAPPA_KAFKA_KEY",
    "ssl.key.password": "KAPPA_KAFKA_KEY_PASSWORD",
    "ssl.keystore.password": "KAPPA_KAFKA_STORE_PASSWORD",
    "ssl.truststore.password": "KAPPA_KAFKA_TRUST_PASSWORD",
}
# Java asks only the URLs for tokens that this property of the JVM names.
ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"


def java_options(options: Mapping[str, str]) -> dict[str, str]:
    """Returns the options of the Java client, including secrets.

    `options` are librdkafka's options; they may also contain options under Java's names.
    """
    given = {_JAVA_NAMES.get(name, name): value for name, value in options.items()}
    if "ssl.ca.location" in options:
        # librdkafka reads PEM files; Java needs a setting for that.
        given.setdefault("ssl.truststore.type", "PEM")
    certificate, key = given.pop("ssl.certificate.location", ""), given.pop("ssl.key.location", "")
    if certificate and key:
        # A file with both would be a second copy of the key.
        given["ssl.keystore.type"] = "PEM"
        given["ssl.keystore.certificate.chain"] = Path(certificate).read_text(encoding="utf-8")
        given["ssl.keystore.key"] = Path(key).read_text(encoding="utf-8")
    elif certificate:
        given.setdefault("ssl.keystore.type", "PEM")
        given.setdefault("ssl.keystore.location", certificate)
    if "security.protocol" in given:
        given["security.protocol"] = given["security.protocol"].upper()
    user, password = given.pop("sasl.username", None), given.pop("sasl.password", None)
    if user is not None and password is not None:
        is_scram = given.get("sasl.mechanism", "PLAIN").startswith("SCRAM")
        module = "scram.ScramLoginModule" if is_scram else "plain.PlainLoginModule"
        given.setdefault("sasl.jaas.config", _login_text(module, username=user, password=password))
    if given.pop(f"{_TOKENS}method", "") == "oidc":
        names = {"clientId": "client.id", "clientSecret": "client.secret", "scope": "scope"}
        asked = {ours: given.pop(_TOKENS + name, "") for ours, name in names.items()}
        given.setdefault(
            "sasl.jaas.config",
            _login_text(
                "oauthbearer.OAuthBearerLoginModule",
                **{name: value for name, value in asked.items() if value},
            ),
        )
        given.setdefault(
            "sasl.login.callback.handler.class",
            f"{_MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler",
        )
    return given


def token_url(options: Mapping[str, str]) -> str:
    """Returns the URL from which a client requests OAuth tokens, or "" if it needs no tokens."""
    return options.get(f"{_TOKENS}token.endpoint.url", "")


def named_secrets(options: Mapping[str, str]) -> dict[str, str]:
    """Returns the Java client's options with references to environment variables for secrets."""
    named = {
        name: f"${{env:{_SECRETS[name]}}}" if name in _SECRETS else value
        for name, value in options.items()
    }
    if named != options:
        named |= {"config.providers": "env", "config.providers.env.class": _PROVIDER}
    return named


def secret_variables(options: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment variables with secrets that a JVM needs for these options."""
    found = java_options(options)
    return {_SECRETS[name]: value for name, value in found.items() if name in _SECRETS}


def _login_text(module: str, **options: str) -> str:
    given = " ".join(f"{name}={_quoted_text(value)}" for name, value in options.items())
    return f"{_MODULES}.{module} required {given};"


def _quoted_text(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
