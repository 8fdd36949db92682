"""A platform on a secured cluster: it works with exactly its rules, and shows no secret."""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from e2e_shop import LEAN_1, order, without_returns
from secured import SecuredBroker
from sinking import rows_of_topic, served_records
from testbed import Said, Testbed

from kappa.replay.status.run_records import served_at

pytestmark = [pytest.mark.long, pytest.mark.jvm, pytest.mark.timeout(1500)]

USER = "kappa-app"
# What is rendered with escapes has this part as it is.
CANARY = "c4nary7f3e"
PASSWORD = f'{CANARY}"\\$ é'
SHOP = LEAN_1.replace("import Table,", "import Alert, Sink, Table,").replace(
    '        Table("order_log"),\n',
    '        Table("order_log"),\n        Sink("customers", of="by_customer"),\n'
    '        Alert("busy", of="by_customer", to="page", where="orders > 10"),\n',
)
PAGES = (
    *("/", "/tables", "/tables/shop/by_customer", "/alerts", "/topics", "/topics/orders"),
    *("/rejects", "/history", "/rollouts/1", "/metrics", "/openapi.json", "/healthz"),
    *(
        f"/api/v1/{name}"
        for name in ("builds", "pipelines", "rollouts", "history", "tables", "topics", "sinks")
    ),
)
COMMANDS = (
    *("status", "status -o json", "history", "history -o json", "show 1", "topics list"),
    *("plan", "validate", "tables", "sinks -o json", "alerts list", "archive status"),
    *("logs shop", "logs courier", "logs supervisor", "doctor", "doctor --acls -o json"),
    *("doctor --acls --script", "query --sql x", "produce nothing -", "plan nothing"),
)


@contextmanager
def secured_shop(folder: Path, broker: SecuredBroker, user: str, auth: str) -> Iterator[Testbed]:
    """Yields a project for a user of the cluster, before `kappa up`."""
    settings = (
        f'[kafka]\nbootstrap_servers = "{broker.at("sasl")}"\n'
        f'[kafka.auth]\nmechanism = "SCRAM-SHA-512"\nuser = "{user}"\n'
        f'ca = "{broker.authority.ca}"\n{auth}\n'
    )
    bed = Testbed(folder / "shop", settings, listen="127.0.0.1:0")
    bed.declare("shop", SHOP)
    try:
        yield bed
    finally:
        bed.kappa("down")
        bed.ensure_gone()


def rules_of(bed: Testbed) -> list[tuple[str, str, str]]:
    """Returns exactly the access rules that the project needs, as the doctor prints them."""
    return [
        (each["kind"], each["name"], each["operation"])
        for each in bed.must("doctor", "--acls", "-o", "json").json()
    ]


def ensure_sent(
    bed: Testbed, broker: SecuredBroker, *, orders: str = "orders", sink: str = "customers"
) -> None:
    """Waits until the whole log is served, and the sink's topic has the served rows."""
    bed.wait_until_folded("shop", broker.log.end([orders]))
    bed.wait(
        lambda: rows_of_topic(broker.log, sink) == served_records(bed.store, "by_customer"),
        "the sink",
    )


def produce(broker: SecuredBroker, start: int, end: int, *, orders: str = "orders") -> None:
    broker.log.produce((order(number) for number in range(start, end)), orders)


def found_in(folders: Sequence[Path]) -> list[str]:
    """Lists the files, and the command lines of all processes, that contain the canary."""
    # A folder may vanish meanwhile, which only `os.walk` passes over.
    below = (Path(at, name) for each in folders for at, _, names in os.walk(each) for name in names)
    files = [path for path in below if path.is_file()]
    files += Path("/proc").glob("[0-9]*/cmdline")
    found = []
    for file in files:
        try:
            if CANARY.encode() in file.read_bytes():
                found.append(str(file))
        except OSError:
            # It is gone by now.
            continue
    return found


def pages(bed: Testbed) -> str:
    """Returns all served pages and documents as one text."""
    url = served_at(bed.store)
    texts = []
    for page in PAGES:
        try:
            with urllib.request.urlopen(f"{url}{page}", timeout=60) as answer:
                texts.append(answer.read().decode())
        except urllib.error.HTTPError as error:
            texts.append(error.read().decode())
    return "\n".join(texts)


def test_with_exactly_its_rules_a_pipeline_works_and_its_password_is_nowhere(
    tmp_path: Path, secured: SecuredBroker
) -> None:
    secured.add_user(USER, PASSWORD)
    with secured_shop(tmp_path, secured, USER, "") as bed:
        assert "KAPPA__KAFKA__AUTH__PASSWORD" in bed.kappa("up", "-d").err
        bed.environment["KAPPA__KAFKA__AUTH__PASSWORD"] = PASSWORD
        secured.allow(USER, rules_of(bed))
        folders = (bed.folder, bed.store.folder)

        bed.must("up", "-d")
        bed.must("topics", "create")
        lines = "".join(f"{(order(number).value or b'').decode()}\n" for number in range(100))
        said: list[Said] = [bed.must("produce", "orders", "-", given=lines)]
        produce(secured, 100, 300)
        said.append(bed.must("deploy", "--yes"))
        ensure_sent(bed, secured)
        assert bed.rows("select count(*) as n from order_log")[0]["n"] == 300
        assert found_in(folders) == []

        # A replay, beside a tail that has Spark's own client of Kafka; then a promote.
        bed.declare("shop", without_returns(SHOP))
        said.append(bed.must("stage", "shop", "--yes"))
        produce(secured, 300, 400)
        said.append(bed.must("wait", "shop"))
        assert found_in(folders) == []
        said.append(bed.must("promote", "shop", "--yes"))
        produce(secured, 400, 500)
        ensure_sent(bed, secured)
        assert bed.rows("select count(*) as n from order_log")[0]["n"] == 500
        assert any("busy" in line for line in bed.must("alerts", "list").out.splitlines())

        said += [bed.kappa(*line.split(), given="{}") for line in COMMANDS]
        wrong = bed.kappa("topics", "list", KAPPA__KAFKA__AUTH__PASSWORD=f"{CANARY}x")
        assert wrong.code == 1
        assert f"user {USER} is not let in" in wrong.err
        assert wrong.err.count("\n") <= 2
        said.append(wrong)
        assert [each for each in said if CANARY in each.out + each.err] == []
        assert CANARY not in pages(bed)
        bed.must("down")
        assert found_in(folders) == []


def test_commands_name_the_rule_that_they_miss_and_a_wrong_password(
    tmp_path: Path, secured: SecuredBroker
) -> None:
    user = "less-and-less"
    secured.add_user(user, PASSWORD)
    password = tmp_path / "password"
    password.write_text(f"{CANARY}-wrong\n")
    with secured_shop(tmp_path, secured, user, f'password_file = "{password}"') as bed:
        rules = rules_of(bed)
        secured.allow(user, rules)

        def refused(*arguments: str, given: str | None = None) -> str:
            said = bed.kappa(*arguments, given=given)
            assert said.code == 1, said
            assert CANARY not in said.out + said.err
            return said.err

        assert f"user {user} is not let in" in refused("up", "-d")
        # It is read anew, without the line's end.
        password.write_text(f"{PASSWORD}\n")
        bed.must("up", "-d")
        bed.must("topics", "create")

        line = (order(1).value or b"").decode() + "\n"
        produces = ("produce", "orders", "-")
        for operations, missed, command, given in (
            (["Write"], "Write", produces, line),
            (["Create"], "Create", ("topics", "create"), None),
            (["Read", "Write"], "Describe", produces, line),
        ):
            gone = [("topic", "orders", each) for each in operations]
            assert {*gone} < {*rules}
            secured.forbid(user, gone)
            err = refused(*command, given=given)
            assert f"not allow User:{user} the operation {missed} on topic orders" in err
            assert f"--allow-principal User:{user} --operation {missed} --topic orders" in err
            secured.allow(user, gone)
            bed.must(*command, given=given)


@pytest.mark.sweep
def test_a_running_platform_says_which_rule_is_gone_and_goes_on_once_it_is_back(
    tmp_path: Path, secured: SecuredBroker
) -> None:
    user, orders, sink = "on-and-off", "purchases", "buyers"
    secured.add_user(user, PASSWORD)
    with secured_shop(tmp_path, secured, user, "") as bed:
        # Topics of its own: the cluster is other tests', too.
        bed.declare(
            "shop", SHOP.replace('"orders", p', f'"{orders}", p').replace("customers", sink)
        )
        bed.environment["KAPPA__KAFKA__AUTH__PASSWORD"] = PASSWORD
        rules = rules_of(bed)
        secured.allow(user, rules)
        bed.must("up", "-d")
        bed.must("topics", "create")
        produce(secured, 0, 50, orders=orders)
        bed.must("deploy", "--yes")
        ensure_sent(bed, secured, orders=orders, sink=sink)

        count = "select count(*) as n from order_log"
        for number, (command, gone) in enumerate(
            (
                (("status", "-o", "json"), ("topic", orders, "Read")),
                (("sinks", "-o", "json"), ("topic", sink, "Write")),
            ),
            start=1,
        ):
            assert gone in rules
            _, name, operation = gone
            secured.forbid(user, [gone])
            produce(secured, 50 * number, 50 * (number + 1), orders=orders)
            sentence = f"does not allow User:{user} the operation {operation} on topic {name}"
            bed.wait(lambda typed=command, said=sentence: said in bed.must(*typed).out, sentence)  # type: ignore[misc]
            # What serves answers meanwhile.
            assert bed.rows(count)[0]["n"] >= 50 * number
            secured.allow(user, [gone])
            ensure_sent(bed, secured, orders=orders, sink=sink)
            assert bed.rows(count)[0]["n"] == 50 * (number + 1)
