"""Converts `[kafka.auth]` to librdkafka's options.

The files of secrets and certificates are read at each call, as they may change.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kappa.base.errors import SettingsError
from kappa.base.sections import KafkaAuth, Mechanism
from kappa.base.settings import Settings

_PKCS8 = "openssl pkcs8 -topk8 -nocrypt -in {0} -out {0}.pkcs8"
# Other names of options that decide about access.
_OTHER_NAMES = {"sasl.mechanisms", "sasl.jaas.config", "ssl.ca.pem", "ssl.key.pem"}


def client_options(settings: Settings) -> dict[str, str]:
    """Returns the options for every client of the project's cluster.

    Raises SettingsError if a secret or a file is missing, or if `[kafka.options]` contains an
    option that `[kafka.auth]` sets.
    """
    auth, options = settings.kafka.auth, settings.kafka.options
    if not auth.is_declared:
        return dict(options)
    rendered = _rendered_options(auth, settings.project)
    twice = sorted(options.keys() & (rendered.keys() | _OTHER_NAMES))
    if twice:
        raise SettingsError(
            f"kafka.options has {twice[0]}, which kafka.auth decides",
            hint="leave it out of [kafka.options], or leave [kafka.auth] out",
        )
    return {**options, **rendered}


def _rendered_options(auth: KafkaAuth, project: Path) -> dict[str, str]:
    found = {"security.protocol": str(auth.wire)}
    if auth.ca is not None:
        found["ssl.ca.location"] = _read_pem("ca", project / auth.ca, "CERTIFICATE")
    if auth.certificate is not None and auth.key is not None:
        found["ssl.certificate.location"] = _read_pem(
            "certificate", project / auth.certificate, "CERTIFICATE"
        )
        found["ssl.key.location"] = _read_key(project / auth.key)
    if auth.mechanism is not None:
        found["sasl.mechanism"] = str(auth.mechanism)
    if auth.mechanism is Mechanism.OAUTHBEARER:
        found |= {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": auth.token_url,
            "sasl.oauthbearer.client.id": auth.client_id,
            "sasl.oauthbearer.client.secret": _read_secret(
                "client_secret", auth.client_secret, auth.client_secret_file, project
            ),
            **({"sasl.oauthbearer.scope": auth.scope} if auth.scope else {}),
        }
    elif auth.mechanism is not None:
        password = _read_secret("password", auth.password, auth.password_file, project)
        found |= {"sasl.username": auth.user, "sasl.password": password}
    return found


def _read_secret(name: str, given: str, file: Path | None, project: Path) -> str:
    """Returns a secret: `given`, or the content of `file` without the final newline.

    Raises SettingsError if the secret is missing, or has characters that are not printable.
    """
    where = f"kafka.auth.{name}"
    if file is not None:
        where = f"kafka.auth.{name}_file, {project / file},"
        given = _read_text(f"{name}_file", project / file).removesuffix("\n").removesuffix("\r")
    elif not given:
        raise SettingsError(
            f"kafka.auth has no {name}",
            hint=f"give it in the variable KAPPA__KAFKA__AUTH__{name.upper()} of kappa up and of "
            f"each command, or name a file with it: {name}_file",
        )
    if not given or not given.isprintable():
        raise SettingsError(
            f"{where} has {'a character that cannot be typed' if given else 'nothing in it'}",
            hint=f"it is one line, which is the {name.replace('_', ' ')}",
        )
    return given


def _read_pem(name: str, file: Path, what: str) -> str:
    if f"-----BEGIN {what}-----" not in _read_text(name, file):
        raise SettingsError(
            f"kafka.auth.{name}, {file}, has no {what.lower()} in PEM",
            hint=f"it begins with -----BEGIN {what}-----",
        )
    return str(file.absolute())


def _read_key(file: Path) -> str:
    text = _read_text("key", file)
    if "BEGIN ENCRYPTED PRIVATE KEY" in text or "Proc-Type: 4,ENCRYPTED" in text:
        raise SettingsError(
            f"kafka.auth.key, {file}, is encrypted, and nobody is there to type its password",
            hint=f"keep it readable by you alone, and not encrypted: {_PKCS8.format(file)}",
        )
    if "-----BEGIN PRIVATE KEY-----" not in text:
        raise SettingsError(
            f"kafka.auth.key, {file}, is not a private key in PEM and PKCS#8, which Java wants",
            hint=f"make one of it: {_PKCS8.format(file)}",
        )
    return str(file.absolute())


def _read_text(name: str, file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise SettingsError(
            f"kafka.auth.{name} cannot be read: {file}: {why}",
            hint="paths are relative to the folder of kappa.toml",
        ) from None


def principal_of(options: Mapping[str, str | int | float | bool]) -> str:
    """Returns the principal by which the cluster knows a client with these options.

    The result is "" if only the cluster knows the principal.
    """
    user = options.get("sasl.username")
    return f"User:{user}" if user else ""
