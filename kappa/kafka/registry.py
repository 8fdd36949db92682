"""The client of a schema registry, over HTTP.

The official client would add 26 packages for a few requests whose answers are plain JSON. This
client does not follow redirects, because it would send the password to the redirect's target.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlsplit

from kappa.base.errors import SettingsError, Unreachable, UsageError
from kappa.base.sections import RegistrySettings
from kappa.declare.formats.registry_schemas import PinnedSchema, RegisteredSchema

_AVRO = "AVRO"
_JSON = "application/vnd.schemaregistry.v1+json"
_NEWEST = "latest"
_AWAY = "see whether it runs, and what registry.url in kappa.toml is"
_NO_LOGIN = "set registry.user and registry.password, or registry.token"
# Schemas that refer to one another deeper than this are a circle.
_DEEPEST = 32


class RegistryClient:
    """A client of a schema registry."""

    def __init__(self, settings: RegistrySettings) -> None:
        """Stores the settings of the registry.

        Raises SettingsError if no registry is set, or if its URL is not valid.
        """
        if settings.url is None:
            raise SettingsError(
                "no schema registry is set",
                hint='set it in kappa.toml: [registry] url = "http://127.0.0.1:8081"',
            )
        url = urlsplit(settings.url)
        if url.scheme not in {"http", "https"} or url.hostname is None:
            raise SettingsError(
                "registry.url is not an HTTP URL", hint='such as "https://registry.example:8081"'
            )
        if url.username is not None or url.password is not None:
            raise SettingsError("registry.url has a user or a password in it", hint=_NO_LOGIN)
        self._settings = settings
        self._host, self._port = url.hostname, url.port
        self._is_secure = url.scheme == "https"
        self._path = url.path.rstrip("/")
        # Errors show this text, which has no secret.
        self._shown = f"{url.scheme}://{url.netloc}"

    def subjects(self) -> tuple[str, ...]:
        """Returns the names of all subjects, sorted."""
        return tuple(sorted(self._get("/subjects") or ()))

    def pin(self, subject: str, version: int | None = None) -> PinnedSchema:
        """Returns a version of a subject, with its schema. The default is the newest version.

        Raises UsageError if the version does not exist.
        """
        asked = f"/subjects/{quote(subject, safe='')}/versions/{version or _NEWEST}"
        found = self._get(asked)
        if found is None:
            which = f"version {version} of subject {subject}" if version else f"subject {subject}"
            raise UsageError(
                f"the registry at {self._shown} has no {which}", hint="see kappa schemas list"
            )
        schema = self._registered(found)
        if not isinstance(found.get("version"), int) or not isinstance(found.get("id"), int):
            raise self._odd()
        return PinnedSchema(subject, found["version"], found["id"], schema)

    def newest(self, subject: str) -> int | None:
        """Returns the newest version number of a subject, or None for an unknown subject."""
        found = self._get(f"/subjects/{quote(subject, safe='')}/versions")
        if found is None:
            return None
        if not isinstance(found, list) or not all(type(each) is int for each in found):
            raise self._odd()
        return max(found, default=None)

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Returns the schema with the id `schema_id`.

        If the registry does not know the id, the `text` of the result is None.
        """
        found = self._get(f"/schemas/ids/{schema_id}")
        return RegisteredSchema(_AVRO, None) if found is None else self._registered(found)

    def incompatible(self, subject: str, schema: RegisteredSchema) -> tuple[str, ...] | None:
        """Returns the reasons why a schema may not become the next version of a subject.

        Returns an empty tuple if there is no reason, and None for an unknown subject.
        """
        asked = f"/compatibility/subjects/{quote(subject, safe='')}/versions/{_NEWEST}?verbose=true"
        found = self._asked("POST", asked, {"schema": schema.text or "", "schemaType": schema.kind})
        if found is None:
            return None
        if found.get("is_compatible"):
            return ()
        return tuple(map(str, found.get("messages") or ())) or ("it gives no reason",)

    def _registered(self, found: Any) -> RegisteredSchema:
        if not isinstance(found, dict) or not isinstance(found.get("schema"), str):
            raise self._odd()
        texts: dict[tuple[str, int], str] = {}
        self._collect(found.get("references") or (), texts, 0)
        return RegisteredSchema(
            found.get("schemaType") or _AVRO, found["schema"], tuple(texts.values())
        )

    def _collect(
        self, references: Sequence[Any], texts: dict[tuple[str, int], str], depth: int
    ) -> None:
        """Adds the texts of referenced schemas to `texts`.

        If a referenced schema refers to other schemas, the texts of those schemas are added before
        its own text. Raises Unreachable if the registry lacks a referenced schema.
        """
        for each in references:
            subject, version = each["subject"], each["version"]
            if (subject, version) in texts or depth > _DEEPEST:
                continue
            found = self._get(f"/subjects/{quote(subject, safe='')}/versions/{version}")
            if found is None:
                raise Unreachable(
                    f"the registry at {self._shown} lacks version {version} of subject {subject}, "
                    "which a schema refers to",
                    hint="register it there again",
                )
            self._collect(found.get("references") or (), texts, depth + 1)
            texts[subject, version] = found["schema"]

    def _get(self, path: str) -> Any:
        return self._asked("GET", path, None)

    def _asked(self, method: str, path: str, document: Any) -> Any:
        """Sends a request. Returns the parsed answer, or None for a missing resource (404).

        Raises Unreachable if the registry does not answer, refuses the user, or answers with an
        error.
        """
        settings = self._settings
        headers = {"accept": _JSON, "content-type": _JSON, "user-agent": "kappa"}
        if settings.token:
            headers["authorization"] = f"Bearer {settings.token}"
        elif settings.user:
            given = f"{settings.user}:{settings.password}".encode()
            headers["authorization"] = f"Basic {base64.b64encode(given).decode()}"
        body = None if document is None else json.dumps(document).encode()
        try:
            connection = self._connection()
            try:
                connection.request(method, f"{self._path}{path}", body, headers)
                answer = connection.getresponse()
                status, content = answer.status, answer.read()
            finally:
                connection.close()
        except (OSError, http.client.HTTPException) as error:
            why = str(error) or type(error).__name__
            raise Unreachable(
                f"the schema registry at {self._shown} does not answer: {why}", hint=_AWAY
            ) from None
        if status == http.client.NOT_FOUND:
            return None
        if status in {http.client.UNAUTHORIZED, http.client.FORBIDDEN}:
            raise Unreachable(
                f"the schema registry at {self._shown} refuses this user: it answered {status}",
                hint=_NO_LOGIN,
            )
        try:
            found = json.loads(content)
        except ValueError:
            found = None
        if status != http.client.OK or found is None:
            raise Unreachable(f"the schema registry at {self._shown} answered {status}", hint=_AWAY)
        return found

    def _odd(self) -> Unreachable:
        return Unreachable(f"the answer of {self._shown} is not a schema", hint=_AWAY)

    def _connection(self) -> http.client.HTTPConnection:
        seconds = self._settings.timeout_seconds
        if not self._is_secure:
            return http.client.HTTPConnection(self._host, self._port, timeout=seconds)
        ca = self._settings.ca
        try:
            context = ssl.create_default_context(cafile=None if ca is None else str(ca))
        except (OSError, ssl.SSLError) as error:
            raise SettingsError(
                f"registry.ca is {ca}, which cannot be read: {error}",
                hint="it is a file of certificates in PEM",
            ) from None
        return http.client.HTTPSConnection(self._host, self._port, timeout=seconds, context=context)
