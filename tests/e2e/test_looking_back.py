"""Looking back, soak and collection, end to end.

A dashboard's answers are read again across a promote, an undo and a restart.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake
from e2e_shop import V1, V2, expected, item, order
from msgspec.structs import replace
from referenced import assert_files_are_those_referenced
from testbed import PATIENCE_SECONDS, Testbed, platform

from kappa.engine.job.legs import Legs
from kappa.kafka.producer import ProducedRecord
from kappa.state.build import read_birth, table_path
from kappa.state.frontier import Frontiers
from kappa.state.kept_frontiers import kept_frontiers_of
from kappa.state.offsets import Offsets
from kappa.tables.delta import open_newest
from kappa.tables.file_list import read_list
from kappa.tables.versions import mark_of

pytestmark = [pytest.mark.long, pytest.mark.jvm, pytest.mark.timeout(1200)]

SETTINGS = "[history]\nevery_seconds = 1.0\n"
NO_SOAK = SETTINGS + '[rollout]\nsoak = "0s"\n'
SQL = (
    "select (select count(*) from order_log) as orders, "
    "(select sum(orders) from by_customer) as counted"
)


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory, lent: str) -> Iterator[Testbed]:
    with platform(tmp_path_factory.mktemp("past") / "shop", lent + SETTINGS, shop=V1) as bed:
        bed.log.produce((order(number) for number in range(500)), "orders")
        bed.log.produce((item(number, f"title {number}") for number in range(9)), "items")
        bed.must("deploy", "--yes")
        yield bed


def test_tables_are_proved_in_one_slice_while_events_arrive_beside_a_killed_proof(
    bed: Testbed,
) -> None:
    bed.log.produce(
        [
            *(ProducedRecord(b"someone", b"{", partition=0) for _ in range(3)),
            *(order(number) for number in range(50)),
        ],
        "orders",
    )
    bed.wait_until_folded("shop", bed.log.end(["orders", "items"]))
    rows = bed.rows('select customer, item, amount, epoch_us("at") as "at" from order_log')
    killed = bed.start("prove", "shop")
    bed.wait(lambda: bool(refolding(bed)), "a proof that is under way")
    # A process that starts another one is there twice for a moment.
    begun = refolding(bed)
    proving = bed.start("prove", "shop", "--slices", "one", "-o", "json")
    bed.wait(
        lambda: bool(begun & refolding(bed)) and bool(refolding(bed) - begun), "two proofs at once"
    )
    killed.kill()
    killed.communicate()
    bed.wait(lambda: not begun & refolding(bed), "the end of what the killed one had started")
    bed.log.produce((order(number) for number in range(20)), "orders")
    bed.wait_until_folded("shop", bed.log.end(["orders", "items"]))
    # It is niced: on a busy machine everything else goes before it.
    out, err = proving.communicate(timeout=3 * PATIENCE_SECONDS)

    assert proving.returncode == 0, err
    found = json.loads(out)
    tables = {each["table"]: each for each in found["tables"]}
    assert (found["equal"], found["how"], found["seed"]) == (True, "one", None)
    assert {name: each["rows_after"] for name, each in tables.items()} == {
        "by_customer": 17,
        "by_item": 9,
        "order_log": 550,
        "items": 9,
        "rejects": 3,
    }
    assert tables["order_log"]["hash"] == hash_by_hand(rows)
    assert (
        found["hash"]
        == sha256(
            "".join(
                f"{name} {each['rows_before']} {each['hash']}\n"
                for name, each in sorted(tables.items())
            ).encode()
        ).hexdigest()
    )
    (told,) = [each for each in bed.must("history", "-o", "json").json() if each["what"] == "proof"]
    assert (
        told["state"],
        *(str(told["proof"][name]) for name in ("how", "hash", "offsets")),
    ) == ("proved", "one", found["hash"], str(found["offsets"]))
    # What the killed one left has gone too.
    assert not [*bed.store.path("tmp").glob("prove-*")]


def refolding(bed: Testbed) -> set[int]:
    return {*bed.pids("kappa.engine.children.refold")}


def hash_by_hand(rows: list[dict[str, Any]]) -> str:
    """Computes the hash of docs/explain/guarantees.md, for texts, integers and nulls."""
    sums = [0, 0, 0, 0]
    for row in rows:
        texts = [
            "~" if value is None else f"{len(str(value).encode())}:{value}"
            for _, value in sorted(row.items())
        ]
        digest = sha256("".join(texts).encode()).digest()
        sums = [
            (each + int.from_bytes(digest[8 * place : 8 * place + 8])) % 2**64
            for place, each in enumerate(sums)
        ]
    return "".join(f"{each:016x}" for each in sums)


def read(bed: Testbed, *when: Sequence[str]) -> list[dict[str, Any]]:
    """Returns for each of these times the rows, the generation and the offsets of a query."""
    answers = [
        said.json() for said in bed.at_once(*(("query", SQL, "-o", "json", *each) for each in when))
    ]
    return [
        {
            "generation": answer["generation"],
            "rows": answer["rows"],
            "offsets": answer["builds"]["shop"]["offsets"],
        }
        for answer in answers
    ]


def read_and_note(bed: Testbed) -> tuple[str, dict[str, Any]]:
    """Waits until all produced records are served and kept; returns the time and the answer."""
    bed.wait_until_folded("shop", bed.log.end(["orders", "items"]))
    shown = bed.frontier(bed.live("shop"))
    assert shown is not None
    # What readers see is kept a second later at most, for as long as nothing newer is shown.
    bed.wait(
        lambda: any(
            each.frontier.offsets.equals(shown.offsets)
            for each in kept_frontiers_of(bed.store, shown.build)
        ),
        "what is kept",
    )
    return datetime.now(UTC).isoformat(), *read(bed, ())


def produce(bed: Testbed) -> None:
    bed.log.produce((order(number) for number in range(100)), "orders")


def test_a_change_of_a_view_alone_serves_the_same_tables_in_seconds(bed: Testbed) -> None:
    live, generation = bed.live("shop"), bed.state().generation
    jobs, described = bed.pids("kappa.engine"), bed.store.names("cache/describe")
    paths = {each["path"] for each in bed.must("tables", "-o", "json").json() if each["path"]}
    old = bed.rows("from titled order by title")
    bed.declare("shop", V1.replace("as orders from", "as orders, max(orders) as most from"))

    begun = time.monotonic()
    said = bed.must("deploy", "--yes")
    deployed = time.monotonic()

    assert f"replays nothing: the tables of build {live} are used" in said.out
    assert bed.live("shop") != live
    assert f"it serves the tables of build {live}" in bed.must("show", str(generation + 1)).out
    produce(bed)
    bed.wait_until_folded("shop", bed.log.end(["orders", "items"]))
    new = bed.rows("from titled order by title")
    assert [*new[0]] == ["title", "orders", "most"]
    assert sum(row["orders"] for row in new) == sum(row["orders"] for row in old) + 100
    served = bed.must("tables", "-o", "json").json()
    assert {each["path"] for each in served if each["path"]} == paths
    # The same process folds on, and no other was started to learn what the function returns.
    assert bed.pids("kappa.engine") == jobs
    assert bed.store.names("cache/describe") == described
    past = ("query", "from titled order by title", "-o", "json", "--at-generation", str(generation))
    assert bed.must(*past).json()["rows"] == old

    undoing = time.monotonic()
    bed.must("undo", "--yes")
    undone = time.monotonic()
    assert bed.live("shop") == live
    assert [*bed.rows("from titled")[0]] == ["title", "orders"]
    bed.declare("shop", V1)
    assert "unchanged" in bed.must("plan").out
    print(f"a view: deployed in {deployed - begun:.1f} s, undone in {undone - undoing:.1f} s")


def test_what_was_read_is_read_again_until_the_build_that_showed_it_is_collected(
    bed: Testbed,
) -> None:
    """The answers survive a promote, an undo and a restart, until the soak has ended."""
    first = bed.state().generation
    noted = [read_and_note(bed)]
    produce(bed)
    noted.append(read_and_note(bed))
    bed.declare("shop", V2)
    bed.must("deploy", "--yes")
    produce(bed)
    noted.append(read_and_note(bed))
    bed.must("undo", "--yes")
    produce(bed)
    noted.append(read_and_note(bed))
    assert [seen["generation"] - first for _, seen in noted] == [0, 0, 1, 2]

    def same(*generations: int) -> None:
        asked = {("--at", when): seen for when, seen in noted if seen["generation"] in generations}
        asked |= {
            ("--at-generation", f"{number}"): noted[number - first + 1][1] for number in generations
        }
        assert read(bed, *asked) == list(asked.values())

    # Of what serves now: the third generation is the build of the first again.
    for when, seen in (noted[0], noted[3]):
        assert (
            read(
                bed,
                ("--at-offsets", str(Offsets.parse(seen["offsets"]))),
                ("--at-event-time", when),
            )
            == [{**seen, "generation": first + 2}] * 2
        )
    said = bed.must("gc", "-o", "json").json()["found"]
    assert {each["build"]: each["note"] for each in said if each["build"]} == dict.fromkeys(
        bed.state().wanted_jobs(), "its job runs, and keeps it in shape"
    )
    bed.must("down")
    # With nobody there, nothing runs to keep it.
    assert bed.must("gc", "--dry-run", "-o", "json").json()["found"] == [
        {**each, "note": "would be deleted"}
        for each in bed.must("gc", "-o", "json").json()["found"]
    ]
    same(first, first + 1, first + 2)
    assert_files_are_those_referenced(bed)
    shown = bed.must("show", str(first + 1), "-o", "json").json()
    assert (
        shown["previous_generation"],
        Path(shown["builds"]["shop"]["code"]["folder"]).is_dir(),
    ) == (first, True)

    idle = bed.state().idle["shop"]
    ensure_no_soak(bed)
    bed.wait(
        lambda: (
            idle in bed.state().retired and not bed.store.path(f"builds/{idle}/tables").exists()
        ),
        "the end of the idle build",
    )

    undone = bed.kappa("undo", "--yes")
    looked = bed.kappa("query", SQL, "--at-generation", f"{first + 1}")

    assert undone.code == 2
    assert f"build {idle}, which served pipeline shop before, is retired" in undone.err
    assert looked.code == 1
    assert f"what generation {first + 1} showed last is not kept any more" in looked.err
    same(first, first + 2)
    assert not bed.pids(idle)


def ensure_no_soak(bed: Testbed) -> None:
    """Restarts the platform without a soak, so that it keeps no former build."""
    settings = bed.folder / "kappa.toml"
    text = settings.read_text(encoding="utf-8")
    if NO_SOAK not in text:
        bed.must("down")
        settings.write_text(text.replace(SETTINGS, NO_SOAK), encoding="utf-8")
        bed.must("up", "-d")


# tests/engine/job/test_branches.py folds one within a minute.
@pytest.mark.sweep
def test_a_branch_folds_new_code_onto_the_old_codes_rows_from_past_offsets(
    bed: Testbed,
) -> None:
    ensure_no_soak(bed)
    old = bed.live("shop")
    (began,) = (at for at in [bed.frontier(old)] if at is not None)
    produce(bed)
    bed.wait_until_folded("shop", bed.log.end(["orders", "items"]))
    # Somewhere in the middle of what a slice has folded.
    base = Offsets(
        {
            topic: {
                partition: offset if topic == "items" else began.offsets.at(topic, partition) + 7
                for partition, offset in parts.items()
            }
            for topic, parts in bed.log.end(["orders", "items"]).next.items()
        }
    )
    # What is kept is the same, in whichever order the columns come.
    bed.declare(
        "shop",
        V2.replace(
            'select("customer", "item", "amount", "at")',
            'select("at", "amount", "item", "customer")',
        ),
    )
    branching = bed.start("branch", "shop", "--from", str(base).replace(" ", ","), "--yes")
    bed.wait(
        lambda: (
            (found := bed.state().active("shop")) is not None
            and Legs(bed.store, found.build).last() is not None
        ),
        "the leg that ends at the base",
    )
    # It is just starting its JVM: a child between fork and exec still has its command line.
    os.kill(min(bed.pids("kappa.engine.job.job", "--leg base")), signal.SIGKILL)
    out, err = branching.communicate(timeout=3 * PATIENCE_SECONDS)

    assert branching.returncode == 0, (out, err, bed.logs())
    branch = bed.live("shop")
    told = f"a branch of build {old} (version {read_birth(bed.store, old).version}) at {base}"
    assert branch != old
    assert told in out
    assert told in bed.must("show", str(bed.state().generation)).out
    (chapter,) = (
        each for each in bed.must("history", "-o", "json").json() if each["build"] == branch
    )
    assert (chapter["what"], told in chapter["why"]) == ("branch", True)
    assert read_birth(bed.store, branch).base is not None
    produce(bed)
    bed.wait_until_folded("shop", bed.log.end(["orders", "items"]))
    bed.wait(
        lambda: old in bed.state().retired and not bed.store.path(f"builds/{old}/tables").exists(),
        "the end of the build that it stands on",
    )
    assert_branched(bed, base)

    proof = bed.must("prove", "shop", "--slices", "2")
    assert "proved: 4 tables" in proof.out
    assert told in proof.out
    assert not list(bed.store.path("tmp").glob("prove-*"))


def assert_branched(bed: Testbed, base: Offsets) -> None:
    """Asserts that by_customer has the first version's rows before `base`, the second's after."""
    records = [
        record
        for record in bed.log.records(
            ["orders", "items"], Offsets(), bed.log.end(["orders", "items"])
        )
        if record.value != b"someone"
    ]
    before, after = (
        [
            record
            for record in records
            if (record.offset < base.at(record.topic, record.partition)) is side
        ]
        for side in (True, False)
    )
    rows = {name: list(row) for name, *row in expected(before, version=1)["by_customer"]}
    for name, *row in expected(after, version=2)["by_customer"]:
        orders, amount, least, most = rows.get(name, [0, None, None, None])
        rows[name] = [
            orders + row[0],
            *(
                fold([each for each in pair if each is not None])
                for fold, pair in (
                    (sum, (amount, row[1])),
                    (min, (least, row[2])),
                    (max, (most, row[3])),
                )
            ),
        ]
    assert {
        row["customer"]: [row["orders"], row["amount"], row["least"], row["most"]]
        for row in bed.rows("from by_customer")
    } == rows
    assert all(
        row["mean"] == (row["amount"] / row["amounts"] if row["amounts"] else None)
        for row in bed.rows("from by_customer")
    )
    assert rows not in (
        {name: list(row) for name, *row in expected(records, version=version)["by_customer"]}
        for version in (1, 2)
    )
    assert [tuple(row.values()) for row in bed.rows("from by_item order by item")] == expected(
        records, version=1
    )["by_item"]
    assert (
        sorted(
            (
                tuple(row.values())
                for row in bed.rows("select customer, item, amount from order_log")
            ),
            key=repr,
        )
        == expected(records, version=1)["order_log"]
    )


def test_a_time_to_come_is_a_slip(bed: Testbed) -> None:
    said = bed.kappa(
        "query", SQL, "--at", datetime.fromtimestamp(time.time() + 3600, UTC).isoformat()
    )

    assert said.code == 2
    assert "is yet to come" in said.err


def test_a_proof_finds_forged_rows_and_lost_rows(
    bed: Testbed,
) -> None:
    live = bed.live("shop")
    bed.must("down")
    # As another program would write to it that knows what a commit of Kappa's carries.
    path = table_path(bed.store, live, "by_item")
    version = open_newest(path).version()
    forged = pa.table({"item": ["forged"], "orders": [7]})
    write_deltalake(
        path,
        forged,
        mode="append",
        commit_properties=CommitProperties(
            custom_metadata={"userMetadata": mark_of(path, version).to_json()}
        ),
    )
    # What no frontier names would be taken back.
    newest = bed.frontier(live)
    assert newest is not None
    versions = {**newest.versions, "by_item": version + 1}
    vouched = {**newest.file_lists, "by_item": read_list(path, version + 1).sum}
    Frontiers(bed.store, live).publish(
        replace(newest, number=newest.number + 1, versions=versions, file_lists=vouched)
    )
    bed.must("up", "-d")
    bed.log.produce([order(1)], "orders")
    bed.wait_until_folded("shop", bed.log.end(["orders", "items"]))

    said = bed.kappa("prove", "shop", "--slices", "1")

    assert said.code == 4, said
    assert "not equal: 4 tables" in said.out
    assert "by_item: 10 rows before and 9 after, 0 added, 1 removed" in said.out
    assert "forged" in said.out
    assert "order_log: " not in said.out
    assert "likely cause: nothing in the code explains it" in said.out
    assert "pipeline shop is not proved" in said.err
    assert bed.live("shop") == live
    assert "not equal" in bed.must("history").out
