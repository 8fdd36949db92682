"""The schemas of a registry by id, stored in the root forever as the registry first returned them.

The schema of an id never changes, so a replay reads the stored schemas, and needs no registry. If
the registry does not know an id, that fact is stored too: records with that id are rejects, and a
replay must reject them again. If you delete the file of an unknown id, Kappa asks the registry for
the id again; then the next build can read the records with that id.

A producer can write any of four billion ids. So unknown ids are stored only while the root has
fewer than `MOST_KEPT` schemas. Each process caches up to the same number of further unknown ids in
memory. A replay asks the registry for these ids again, and waits if the registry does not answer.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from kappa.base.disk import put_file
from kappa.base.document_seal import sealed, unsealed
from kappa.base.errors import Superseded, Unreachable
from kappa.base.sections import RegistrySettings
from kappa.base.settings import Settings
from kappa.declare.formats.registry_schemas import RegisteredSchema, open_schemas
from kappa.kafka.registry import RegistryClient
from kappa.state.store import Store

# The root's folder of schemas.
FOLDER = "schemas"
MOST_KEPT = 10_000
# A registry of several servers may not know on one server a schema that another has just accepted.
# Each record may have another id: after a wait in vain there is no further wait within this time.
_DOUBT_SECONDS, _SURE_SECONDS = 3.0, 30.0
_PAUSE_SECONDS = 0.5
# A job waits so long in place for a registry that is away. Then the job ends with the absence as
# its error, and is started again, as after any other trouble.
JOB_PATIENCE_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class StoredSchemas:
    """The schemas that are stored in a folder. Missing schemas are requested from the registry.

    Spark workers receive copies of this object. `known` contains the schemas that the root had when
    the copy was made.
    """

    folder: Path
    settings: RegistrySettings
    patience_seconds: float
    known: Mapping[int, RegisteredSchema] = field(default_factory=dict)

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Returns the schema with the id `schema_id`.

        Raises Unreachable if the schema is not stored and the registry does not answer.
        """
        if schema_id in self.known:
            return self.known[schema_id]
        if (self.folder, schema_id) in _unknown:
            return _UNKNOWN
        path = self.folder / f"{schema_id}.json"
        with suppress(FileNotFoundError):
            kept = _read_schema(path.read_bytes(), str(path))
            if kept is not None:
                return kept
        found = self._asked(schema_id)
        self.folder.mkdir(parents=True, exist_ok=True)
        if found.text is not None or sum(1 for _ in self.folder.iterdir()) < MOST_KEPT:
            put_file(path, _schema_bytes(found))
        else:
            _remember_unknown(self.folder, schema_id)
        return found

    def _asked(self, schema_id: int) -> RegisteredSchema:
        client = RegistryClient(self.settings)
        began = time.monotonic()
        unknown_since: float | None = None
        while True:
            try:
                found = client.schema(schema_id)
            except Unreachable as error:
                if time.monotonic() - began >= self.patience_seconds:
                    raise
                if unknown_since is None:
                    print(f"waits: {error.message}", file=sys.stderr, flush=True)
            else:
                if found.text is not None:
                    return found
                now = time.monotonic()
                unknown_since = now if unknown_since is None else unknown_since
                if now - unknown_since >= _DOUBT_SECONDS:
                    _waited.at = now
                if now - _waited.at < _SURE_SECONDS:
                    return found
            time.sleep(_PAUSE_SECONDS)


class _Waited:
    """The time at which this process last waited for an id that the registry still did not know."""

    at = -math.inf


_waited = _Waited()


# This process's unknown ids that are not kept.
_unknown: set[tuple[Path, int]] = set()
_UNKNOWN = RegisteredSchema("", None)


def _remember_unknown(folder: Path, schema_id: int) -> None:
    if len(_unknown) >= MOST_KEPT:
        _unknown.clear()
    _unknown.add((folder, schema_id))


class RootSchemas:
    """The schemas that are stored in a root in a bucket, for the process that has opened the root.

    The schemas that Spark workers request are stored in a folder on this host. Kappa copies these
    schemas into the root when this process needs them, or before the workers process the next
    slice.
    """

    def __init__(self, store: Store, settings: RegistrySettings, patience_seconds: float) -> None:
        self._store = store
        self._here = StoredSchemas(store.local.path(FOLDER), settings, patience_seconds)
        self._known: dict[int, RegisteredSchema] = {}

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Returns the schema with the id `schema_id`.

        Raises Unreachable if the schema is not stored and the registry does not answer.
        """
        if schema_id in self._known:
            return self._known[schema_id]
        name = f"{FOLDER}/{schema_id}.json"
        kept = self._kept(name)
        return self._keep(name, self._here.schema(schema_id)) if kept is None else kept

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        """Pickles the object as a StoredSchemas object, which workers can use without the root.

        Before that, all schemas of the local folder are copied into the root.
        """
        self._keep_all()
        here = self._here
        return StoredSchemas, (here.folder, here.settings, here.patience_seconds, {**self._known})

    def _keep_all(self) -> None:
        for name in self._store.names(FOLDER):
            if _id_of(name) not in self._known:
                self._kept(name)
        for name in self._store.local.names(FOLDER):
            schema_id = _id_of(name)
            if schema_id is not None and schema_id not in self._known:
                self._keep(name, self._here.schema(schema_id))

    def _keep(self, name: str, found: RegisteredSchema) -> RegisteredSchema:
        if found.text is None and len(self._known) >= MOST_KEPT:
            return found
        # Another host's root may be read from here.
        with suppress(Superseded):
            self._store.put(name, _schema_bytes(found))
        self._known[int(Path(name).stem)] = found
        return found

    def _kept(self, name: str) -> RegisteredSchema | None:
        content, schema_id = self._store.get(name), _id_of(name)
        if content is None or schema_id is None:
            return None
        found = _read_schema(content, self._store.address(name))
        if found is None:
            return None
        self._known[schema_id] = found
        return found


def open_registry(
    settings: Settings, store: Store, *, patience_seconds: float = JOB_PATIENCE_SECONDS
) -> None:
    """Lets this process's readers of records take schemas from a project's root.

    Schemas that the root lacks are requested from the registry. If the registry does not answer,
    the request is repeated for `patience_seconds`.
    """
    registry = settings.registry
    open_schemas(
        StoredSchemas(store.path(FOLDER), registry, patience_seconds)
        if store.is_on_disk
        else RootSchemas(store, registry, patience_seconds)
    )


def _schema_bytes(found: RegisteredSchema) -> bytes:
    """Returns the content of a schema's file: the schema as JSON, with a checksum."""
    return sealed(msgspec.to_builtins(found))[0]


def _read_schema(content: bytes, where: str) -> RegisteredSchema | None:
    """Parses the content of a schema's file.

    If the content is damaged, prints a warning and returns None. The caller then requests the
    schema from the registry again. `where` is the path or URL of the file, for the warning.
    """
    try:
        return msgspec.convert(unsealed(content)[0], RegisteredSchema)
    except ValueError:
        print(f"{where} is damaged, and asked for again", file=sys.stderr, flush=True)
        return None


def _id_of(name: str) -> int | None:
    stem = Path(name).stem
    return int(stem) if stem.isdigit() else None
