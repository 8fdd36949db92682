"""Schemas and source positions of a root in a bucket survive the loss of its host."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import pytest
from object_store import ObjectStore

from kappa.base.sections import RegistrySettings
from kappa.declare.formats.registry_schemas import RegisteredSchema
from kappa.kafka.registry import RegistryClient
from kappa.kafka.stored_schemas import RootSchemas
from kappa.serving.collect.pulled.source_protocol import PullPosition, put_position, read_position
from kappa.state.store import Store

pytestmark = pytest.mark.slow


@pytest.fixture
def store(object_store: ObjectStore, tmp_path: Path) -> Store:
    root = object_store.new_root()
    return Store(root, storage=object_store.storage, local=tmp_path / "local")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns the ids for which a registry is asked."""
    ids: list[int] = []

    def schema(_client: RegistryClient, schema_id: int) -> RegisteredSchema:
        ids.append(schema_id)
        return RegisteredSchema("AVRO", f'"text {schema_id}"')

    monkeypatch.setattr(RegistryClient, "schema", schema)
    return ids


def opened(store: Store) -> RootSchemas:
    return RootSchemas(store, RegistrySettings(url="http://127.0.0.1:9"), 0.0)


def test_a_schema_is_asked_for_once_by_hosts_and_their_workers(store, asked):
    here = opened(store)
    assert here.schema(1).text == '"text 1"'
    # A worker, which has no root, meets another one.
    worker = pickle.loads(pickle.dumps(here))
    assert (worker.schema(1).text, worker.schema(2).text) == ('"text 1"', '"text 2"')
    pickle.dumps(here)

    shutil.rmtree(store.local.folder / "schemas")
    again = opened(store)
    assert (again.schema(1).text, again.schema(2).text) == ('"text 1"', '"text 2"')
    assert pickle.loads(pickle.dumps(opened(store))).schema(2).text == '"text 2"'

    assert asked == [1, 2]


def test_a_schema_that_is_damaged_in_the_root_is_asked_for_again(store, asked, capsys):
    store.put("schemas/7.json", b"{")

    assert opened(store).schema(7).text == '"text 7"'
    assert opened(store).schema(7).text == '"text 7"'

    assert asked == [7]
    assert "schemas/7.json is damaged, and asked for again" in capsys.readouterr().err


def test_a_place_in_a_source_is_that_of_any_host(any_store):
    assert read_position(any_store, "bids", "a") == PullPosition("a")
    put_position(any_store, "bids", PullPosition("a", last_event_id="7"))

    assert read_position(any_store, "bids", "a").last_event_id == "7"
    assert read_position(any_store, "bids", "b") == PullPosition("b")
    any_store.put("collector/pull/bids.json", b"{")
    assert read_position(any_store, "bids", "a") == PullPosition("a")
