"""`[kafka.auth]`: what it accepts, what it refuses, and the resulting options of both clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from kappa.base.errors import SettingsError
from kappa.base.settings import Settings, load_settings
from kappa.kafka.client_options import client_options, principal_of
from kappa.kafka.java_options import java_options, named_secrets, secret_variables

SCRAM = 'mechanism = "SCRAM-SHA-512"\nuser = "app"\n'
TOKENS = 'mechanism = "OAUTHBEARER"\ntoken_url = "https://id/token"\nclient_id = "me"\n'
_CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
_KEY = "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\n"
PASSWORD = "KAPPA__KAFKA__AUTH__PASSWORD"


def settings_of(folder: Path, auth: str, options: str = "") -> Settings:
    text = f'bootstrap_servers = "h:1"\n[kafka.auth]\n{auth}\n[kafka.options]\n{options}'
    (folder / "kappa.toml").write_text(f"[kafka]\n{text}")
    return load_settings(folder)


def test_user_is_rendered_for_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The options are right for librdkafka and for Kafka's Java client."""
    monkeypatch.setenv(PASSWORD, 'a"b\\')
    (tmp_path / "ca.pem").write_text(_CERTIFICATE)
    options = client_options(settings_of(tmp_path, SCRAM + 'ca = "ca.pem"', '"client.id" = "x"'))

    shared = {"client.id": "x", "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}
    ca = str(tmp_path / "ca.pem")
    login = {"sasl.username": "app", "sasl.password": 'a"b\\'}
    assert options == {**shared, "ssl.ca.location": ca, **login}
    assert principal_of(options) == "User:app"
    apache = "org.apache.kafka.common"
    trusted = {"ssl.truststore.type": "PEM", "ssl.truststore.location": ca}
    provider = f"{apache}.config.provider.EnvVarConfigProvider"
    named = {"config.providers": "env", "config.providers.env.class": provider}
    named["sasl.jaas.config"] = "${env:KAPPA_KAFKA_LOGIN}"
    assert named_secrets(java_options(options)) == shared | trusted | named
    module = f"{apache}.security.scram.ScramLoginModule"
    said = module + ' required username="app" password="a\\"b\\\\";'
    assert secret_variables(options) == {"KAPPA_KAFKA_LOGIN": said}


def test_a_certificate_is_rendered_and_its_key_stays_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "own.pem").write_text(_CERTIFICATE)
    (tmp_path / "own.key").write_text(_KEY)
    options = client_options(settings_of(tmp_path, 'certificate = "own.pem"\nkey = "own.key"'))

    assert options == {
        "security.protocol": "SSL",
        "ssl.certificate.location": str(tmp_path / "own.pem"),
        "ssl.key.location": str(tmp_path / "own.key"),
    }
    java = named_secrets(java_options(options))
    stored = {"type": "PEM", "certificate.chain": _CERTIFICATE, "key": "${env:KAPPA_KAFKA_KEY}"}
    assert {name: java[f"ssl.keystore.{name}"] for name in stored} == stored
    assert secret_variables(options) == {"KAPPA_KAFKA_KEY": _KEY}


def test_tokens_are_rendered_for_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The options are right for librdkafka and for Kafka's Java client."""
    monkeypatch.setenv("KAPPA__KAFKA__AUTH__CLIENT_SECRET", "hush")
    options = client_options(settings_of(tmp_path, TOKENS + 'scope = "kafka"'))

    assert options["sasl.oauthbearer.method"] == "oidc"
    assert options["sasl.oauthbearer.client.secret"] == "hush"
    java = named_secrets(java_options(options))
    assert "hush" not in str(java)
    assert java["sasl.oauthbearer.token.endpoint.url"] == "https://id/token"
    assert 'clientSecret="hush"' in secret_variables(options)["KAPPA_KAFKA_LOGIN"]


def test_without_access_options_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "kappa.toml").write_text('[kafka.options]\n"sasl.username" = "me"\n')

    assert client_options(load_settings(tmp_path)) == {"sasl.username": "me"}
    assert named_secrets(java_options({"client.id": "x"})) == {"client.id": "x"}


@pytest.mark.parametrize("text", ["s3cret", "s3cret\n", "s3cret\r\n"])
def test_a_password_is_its_files_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "password").write_bytes(text.encode())
    settings = settings_of(tmp_path, SCRAM + 'password_file = "password"')

    assert client_options(settings)["sasl.password"] == "s3cret"
    # It is read anew for each client.
    (tmp_path / "password").write_text("other")
    assert client_options(settings)["sasl.password"] == "other"


@pytest.mark.parametrize(
    ("auth", "expected"),
    [
        ('password = "hunter2"', r"toml:4: kafka\.auth\.password is a secret"),
        ('client_secret = "hunter2"', r"toml:4: kafka\.auth\.client_secret is a secret"),
        ('mechanism = "GSSAPI"', "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER"),
        ('mechanism = "PLAIN"', "mechanism PLAIN, and no user"),
        ('user = "app"', "no mechanism, which takes no user"),
        (SCRAM + 'token_url = "x"', "takes no token_url"),
        (TOKENS + 'user = "app"', "takes no user"),
        ('mechanism = "OAUTHBEARER"', "no token_url"),
        (SCRAM + 'protocol = "SSL"', "protocol SSL, and mechanism"),
        ('protocol = "SASL_SSL"', "protocol SASL_SSL, and no mechanism"),
        (SCRAM + 'protocol = "SASL_PLAINTEXT"\nca = "x"', "takes no ca"),
        ('certificate = "x"', "certificate, and no key"),
        ('key = "x"', "key, and no certificate"),
        ('pasword = "hunter2"', "did you mean"),
    ],
)
def test_nonsense_is_refused_without_secrets(tmp_path: Path, auth: str, expected: str) -> None:
    with pytest.raises(SettingsError, match=expected) as refused:
        settings_of(tmp_path, auth)

    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("auth", "expected"),
    [
        (SCRAM, PASSWORD),
        (SCRAM + 'password_file = "gone"', "gone: No such file"),
        (SCRAM + 'password_file = "empty"', "has nothing in it"),
        (SCRAM + 'password_file = "lines"', "a character that cannot be typed"),
        (SCRAM + 'password_file = "raw"', "not text in UTF-8"),
        ('ca = "lines"', "no certificate in PEM"),
        ('certificate = "own.pem"\nkey = "old.key"', "openssl pkcs8 -topk8"),
        ('certificate = "own.pem"\nkey = "locked.key"', "is encrypted"),
    ],
)
def test_missing_files_and_secrets_are_named(tmp_path: Path, auth: str, expected: str) -> None:
    """The options are refused only when a client is made."""
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "lines").write_text("hunter2\nhunter3\n")
    (tmp_path / "raw").write_bytes(b"hunter2\xff")
    (tmp_path / "own.pem").write_text(_CERTIFICATE)
    (tmp_path / "old.key").write_text("-----BEGIN RSA PRIVATE KEY-----\nhunter2\n")
    (tmp_path / "locked.key").write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----\nhunter2\n")
    # What needs no broker goes on without the secret.
    settings = settings_of(tmp_path, auth)

    with pytest.raises(SettingsError, match=expected) as refused:
        client_options(settings)
    assert "hunter2" not in str(refused.value)


def test_access_is_declared_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORD, "hunter2")

    with pytest.raises(SettingsError, match=r"kafka\.options has sasl\.mechanisms"):
        client_options(settings_of(tmp_path, SCRAM, '"sasl.mechanisms" = "PLAIN"'))
    with pytest.raises(SettingsError, match="both password and password_file"):
        settings_of(tmp_path, SCRAM + 'password_file = "x"')
    (tmp_path / "kappa.toml").write_text("[kafka.auth]\n" + SCRAM)
    with pytest.raises(SettingsError, match="for a cluster, and none is named"):
        load_settings(tmp_path)


def test_settings_text_has_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORD, "hunter2")

    assert "hunter2" not in repr(settings_of(tmp_path, SCRAM, '"ssl.key.password" = "hunter2"'))
