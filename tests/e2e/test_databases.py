"""A real PostgreSQL and a real Debezium: tables equal the source and its changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from connects import Connect, ensure_connect
from databases import RunningDatabase, running_database
from followed import connector, ensure_rows
from testbed import Testbed, platform

from kappa.base.java.jars import Jars

pytestmark = [pytest.mark.long, pytest.mark.jvm, pytest.mark.timeout(900)]

TOPIC = "shop.app.orders"
TABLES = """
create schema app;
create table app.orders (
  id bigint primary key, customer text not null, amount numeric(10,2),
  at timestamptz not null default now(), placed timestamp, day date, paid boolean default false);
alter table app.orders replica identity full;
-- What was done, by the database itself: an update of a key counts as Debezium tells it.
create table app.done (op text, id bigint, customer text, amount numeric(10,2));
create function app.note() returns trigger language plpgsql as $$ begin
  if tg_op = 'TRUNCATE' then insert into app.done values ('t', null, null, null);
  elsif tg_op = 'DELETE' then
    insert into app.done values ('d', old.id, old.customer, old.amount);
  elsif tg_op = 'UPDATE' and old.id = new.id then
    insert into app.done values ('u', new.id, new.customer, new.amount);
  else
    if tg_op = 'UPDATE' then
      insert into app.done values ('d', old.id, old.customer, old.amount);
    end if;
    insert into app.done values ('c', new.id, new.customer, new.amount);
  end if;
  return null; end $$;
create trigger rows after insert or update or delete on app.orders
  for each row execute function app.note();
create trigger whole after truncate on app.orders
  for each statement execute function app.note();
-- Of a deletion, the log has nothing but its key.
create table app.plain (id int primary key, name text not null);
create publication kappa for table app.orders, app.plain;
"""
SNAPSHOT = """
insert into app.orders (id, customer, amount, placed, day)
  select n, 'c' || n % 7, n / 4.0, '2024-01-31 12:00:00.000001'::timestamp + n * interval '1 s',
    date '1969-12-30' + n::int
  from generate_series(1, 200) as n;
delete from app.done;
insert into app.plain values (1, 'one'), (2, 'two'), (3, 'three');
"""
PIPELINE = """
from kappa import Debezium, Table, Topic, pipeline

ORDERS = Topic(
    "shop.app.orders",
    event="id bigint not null, customer string not null, amount decimal(10,2),"
    " at timestamp not null, placed timestamp, day date, paid boolean, "
    "change_op string not null, change_id string not null, change_at timestamp, change_tx bigint",
    format=Debezium(times="micros", decimals="text"),
    key="id",
    identity="change_id",
    identity_horizon="1 day",
)
PLAIN = Topic(
    "shop.app.plain",
    event="id int not null, name string not null, change_id string not null",
    format="debezium-json",
    key="id",
    identity="change_id",
    identity_horizon="1 day",
)


@pipeline(
    reads={"orders": ORDERS, "plain": PLAIN},
    writes=[Table("orders", latest=ORDERS), Table("order_changes"), Table("plain", latest=PLAIN)],
)
def shop(orders):
    return {"order_changes": orders}
"""
HOW_WRITTEN = {
    "decimal.handling.mode": "string",
    "time.precision.mode": "adaptive_time_microseconds",
    "skipped.operations": "none",
}
# A declaration after `alter table`.
LATER = PIPELINE.replace("paid boolean, ", "note string, ")
HERE = (
    'id, customer, amount::varchar as amount, epoch_us("at") as "at", epoch_us(placed) as placed,'
    " day::varchar as day"
)
THERE = (
    "id, customer, amount::text as amount, (extract(epoch from at) * 1000000)::bigint as at,"
    " (extract(epoch from placed) * 1000000)::bigint as placed, day::text as day"
)


@pytest.fixture
def database() -> Iterator[RunningDatabase]:
    with running_database(TABLES) as running:
        yield running


@pytest.fixture
def debezium(database: RunningDatabase, jars: Jars, tmp_path: Path) -> Iterator[Connect]:
    program = ensure_connect()
    if program is None:
        pytest.skip("not run: no debezium, since its jars cannot be fetched")
    folder = tmp_path / "connect"
    folder.mkdir()
    made = Connect(
        program, folder, jars, "", connector(database, "app.orders,app.plain", HOW_WRITTEN)
    )
    yield made
    made.kill()


def ensure_same(
    bed: Testbed, database: RunningDatabase, here: str = HERE, there: str = THERE
) -> None:
    """Waits until the table equals the source's table; otherwise fails with both."""
    ensure_rows(
        bed,
        f"select {here} from orders order by id",
        database,
        f"select {there} from app.orders order by id",
    )


def told(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in rows)


def ensure_changes(bed: Testbed, database: RunningDatabase) -> None:
    """Asserts that the appended table has each change of the database exactly once."""
    found = told(
        bed.rows(
            "select change_op as op, id, customer, amount::varchar as amount from order_changes"
            " where change_op <> 'r'"
        )
    )
    assert found == told(
        database.rows("select op, id, customer, amount::text as amount from app.done")
    )


def count(bed: Testbed) -> int:
    return bed.log.end([TOPIC]).at(TOPIC, 0)


def test_the_table_is_the_sources_and_each_change_is_there_once(
    tmp_path: Path, database: RunningDatabase, debezium: Connect
) -> None:
    database.run(SNAPSHOT)
    with platform(tmp_path) as bed:
        debezium.bootstrap_servers = bed.log.bootstrap_servers
        debezium.start(flush_ms=500)
        bed.wait(lambda: TOPIC in bed.log.topics() and count(bed) >= 200, debezium.log())
        bed.wait(lambda: "shop.app.plain" in bed.log.topics(), debezium.log())
        debezium.stop()
        bed.declare("shop", PIPELINE)
        bed.must("deploy", "--yes")
        ensure_same(bed, database)
        assert bed.rows("select distinct change_op from order_changes") == [{"change_op": "r"}]

        # It notes no position from here on, so what it has sent before a kill comes again.
        debezium.start(flush_ms=3_600_000)
        database.run("""
            begin;
            insert into app.orders (id, customer, amount) select n, 'new', n from
              generate_series(1001, 1100) as n;
            update app.orders set amount = amount + 0.01 where id % 2 = 0;
            commit;
            delete from app.orders where id % 5 = 0;
            begin; update app.orders set id = id + 10000 where id % 11 = 1; commit;
            begin; insert into app.orders (id, customer) values (1, 'back'); rollback;
            -- Deleted, and made anew: a repeat of the tombstone between must not win.
            delete from app.orders where id = 2; insert into app.orders (id, customer)
              values (2, 'again');
            update app.plain set name = 'second' where id = 2; delete from app.plain where id = 1;
            update app.plain set id = 30 where id = 3;
        """)
        ensure_same(bed, database)
        before = count(bed)
        debezium.kill()
        database.run("update app.orders set customer = 'while it was away' where id % 7 = 0")
        debezium.start(flush_ms=500)
        ensure_same(bed, database)
        # What it had sent was there twice, or nothing was shown.
        bed.wait(lambda: count(bed) >= 2 * before - 200, debezium.log())
        ensure_same(bed, database)
        ensure_changes(bed, database)
        plain = "select id, name from {} order by id"
        assert bed.rows(plain.format("plain")) == database.rows(plain.format("app.plain"))

        database.run("""
            truncate app.orders;
            insert into app.orders (id, customer, amount) values (7, 'after', 7.5), (8, 'after', 1);
        """)
        ensure_same(bed, database)
        ensure_changes(bed, database)

        database.run("""
            alter table app.orders drop column paid; alter table app.orders add column note text;
            insert into app.orders (id, customer, note) values (9, 'later', 'with a note');
        """)
        ensure_same(bed, database)
        bed.declare("shop", LATER)
        bed.must("deploy", "--yes", "--allow-breaking")
        ensure_same(bed, database, f"{HERE}, note", f"{THERE}, note")
        ensure_changes(bed, database)
        assert bed.rows("select reason from rejects") == []
        bed.must("prove", "shop")
