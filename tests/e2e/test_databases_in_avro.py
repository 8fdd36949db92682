"""A real Debezium, Avro converter and registry: the table equals the source's table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from connects import Connect, ensure_connect, to_avro
from databases import RunningDatabase, running_database
from followed import connector, ensure_rows
from registries import RunningRegistry, running_registry
from testbed import Testbed, platform

from kappa.base.java.jars import Jars

pytestmark = [pytest.mark.jvm, pytest.mark.sweep, pytest.mark.timeout(900)]

TOPIC = "shop.app.parts"
# Of a deletion, the log has nothing but its key.
TABLE = """
create schema app;
create table app.parts (
  id int primary key, name text not null, kind text not null default 'new',
  stock bigint not null, ratio double precision not null, listed date not null,
  price numeric(10,2), at timestamptz, placed timestamp, sold boolean);
create publication kappa for table app.parts;
insert into app.parts select n, 'p' || n, 'k' || n % 3, n * 10000000000, n / 3.0,
    date '1969-12-30' + n, n / 4.0, timestamptz '2024-01-31 12:00:00.000001+01' + n * second,
    timestamp '2024-01-31 12:00:00.000001' + n * second, n % 2 = 0
  from generate_series(1, 50) as n, (select interval '1 s' as second) as unit;
"""
PIPELINE = """
from kappa import Table, Topic, pipeline

PARTS = Topic(
    "shop.app.parts",
    event="id int not null, name string not null, kind string not null, stock bigint not null,"
    " ratio double not null, listed date not null, price decimal(10,2), at timestamp,"
    " placed timestamp, sold boolean, note string,"
    " change_op string not null, change_id string not null",
    format="debezium-avro",
    key="id",
    identity="change_id",
    identity_horizon="1 day",
)


@pipeline(reads={"parts": PARTS}, writes=[Table("parts", latest=PARTS), Table("part_changes")])
def shop(parts):
    return {"part_changes": parts}
"""
COLUMNS = "id, name, kind, stock, ratio, sold"
HERE = (
    f"select {COLUMNS}, price::varchar as price, listed::varchar as listed,"
    ' epoch_us("at") as "at", epoch_us(placed) as placed'
)
THERE = (
    f"select {COLUMNS}, price::text as price, listed::text as listed,"
    " (extract(epoch from at) * 1000000)::bigint as at,"
    " (extract(epoch from placed) * 1000000)::bigint as placed"
)


@pytest.fixture
def database() -> Iterator[RunningDatabase]:
    with running_database(TABLE) as running:
        yield running


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[RunningRegistry]:
    folder = tmp_path / "registry"
    folder.mkdir()
    with running_registry(folder) as running:
        if running is None:
            pytest.skip("not run: no registry, since Apicurio cannot be fetched")
        yield running


@pytest.fixture
def debezium(
    database: RunningDatabase, registry: RunningRegistry, jars: Jars, tmp_path: Path
) -> Iterator[Connect]:
    program = ensure_connect()
    if program is None:
        pytest.skip("not run: no debezium, since its jars cannot be fetched")
    folder = tmp_path / "connect"
    folder.mkdir()
    settings = connector(database, "app.parts", {})
    made = Connect(program, folder, jars, "", settings, worker=to_avro(registry))
    yield made
    made.kill()


def ensure_same(bed: Testbed, database: RunningDatabase, more: str = "") -> None:
    ensure_rows(
        bed,
        f"{HERE}{more} from parts order by id",
        database,
        f"{THERE}{more} from app.parts order by id",
    )


def test_changes_in_avro_give_the_sources_table(
    tmp_path: Path, database: RunningDatabase, registry: RunningRegistry, debezium: Connect
) -> None:
    with platform(tmp_path, f'[registry]\nurl = "{registry.url}"\n') as bed:
        debezium.bootstrap_servers = bed.log.bootstrap_servers
        debezium.start(flush_ms=500)
        bed.wait(
            lambda: TOPIC in bed.log.topics() and bed.log.end([TOPIC]).at(TOPIC, 0) >= 50,
            debezium.log(),
        )
        bed.declare("shop", PIPELINE)
        bed.must("deploy", "--yes")
        ensure_same(bed, database)

        database.run("""
            insert into app.parts (id, name, stock, ratio, listed)
              values (100, 'a', 0, 0, '2024-02-29');
            update app.parts set price = price + 0.01, sold = not sold, at = null where id % 2 = 0;
            delete from app.parts where id = 7;
            update app.parts set id = 1008 where id = 8;
            delete from app.parts where id = 9;
            insert into app.parts (id, name, stock, ratio, listed)
              values (9, 'back', 1, 1, '2024-02-29');
        """)
        ensure_same(bed, database)
        # Of a deleted row Debezium has its key alone, and writes something where null may not be.
        told = "id, name, kind, stock, ratio, listed::varchar as listed, price, sold"
        assert bed.rows(f"select {told} from part_changes where change_op = 'd' and id = 7") == [
            {
                "id": 7,
                "name": "",
                "kind": "new",
                "stock": 0,
                "ratio": 0.0,
                "listed": "1970-01-01",
                "price": None,
                "sold": None,
            }
        ]

        # The same topic, by another schema.
        database.run("""
            alter table app.parts add column note text;
            update app.parts set note = 'of ' || id where id % 5 = 0;
            insert into app.parts (id, name, stock, ratio, listed, note)
              values (101, 'b', 0, 0, '2024-02-29', 'later');
            delete from app.parts where id = 11;
        """)
        ensure_same(bed, database, ", note")
        assert bed.rows("select reason, detail from rejects") == []
        debezium.stop()
        assert f"{TOPIC}-value" in bed.must("schemas", "list").out
        # A replay reads by the schemas that are kept.
        registry.stop()
        bed.must("prove", "shop")
