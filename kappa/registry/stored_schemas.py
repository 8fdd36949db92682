"""The schemas of ids, as the registry gave them once: kept in the root for good.

An id is immutable, so a replay reads by what is kept, and needs no registry. That an id is unknown
is kept, too: records of it are rejects, and a replay must reject them again. Delete the file of
such an id, and it is asked for anew; then its records are read by the next build.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kappa.base.disk import put_file
from kappa.base.errors import Unreachable
from kappa.base.sections import RegistrySettings
from kappa.base.settings import Settings
from kappa.formats.schema_source import RegisteredSchema, open_schemas
from kappa.registry.client import RegistryClient
from kappa.state.store import Store

# The root's folder of them.
FOLDER = "schemas"
# A registry of several servers may not know on one what it has just accepted on another.
_DOUBT_SECONDS = 3.0
_PAUSE_SECONDS = 0.5
# So long a job waits in place for a registry that is away. Then it ends, with this as its error,
# and is started again, as after any other trouble.
JOB_PATIENCE_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class StoredSchemas:
    """The source of schemas of a root, which asks the registry for those that it lacks."""

    folder: Path
    settings: RegistrySettings
    patience_seconds: float

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Returns the schema of an id. Raises Unreachable if it is not kept and cannot be had."""
        path = self.folder / f"{schema_id}.json"
        try:
            return msgspec.json.decode(path.read_bytes(), type=RegisteredSchema)
        except FileNotFoundError:
            pass
        except msgspec.MsgspecError:
            # It is asked for again, as one that is missing.
            print(f"{path} is damaged, and asked for again", file=sys.stderr, flush=True)
        found = self._asked(schema_id)
        self.folder.mkdir(parents=True, exist_ok=True)
        put_file(path, msgspec.json.encode(found))
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
                now = time.monotonic()
                unknown_since = now if unknown_since is None else unknown_since
                if found.text is not None or now - unknown_since >= _DOUBT_SECONDS:
                    return found
            time.sleep(_PAUSE_SECONDS)


def open_registry(
    settings: Settings, store: Store, *, patience_seconds: float = JOB_PATIENCE_SECONDS
) -> None:
    """Opens the schemas of a project's root for the readers of this process."""
    open_schemas(StoredSchemas(store.path(FOLDER), settings.registry, patience_seconds))
