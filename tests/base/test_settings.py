"""Laws of settings: flags override the environment, and the environment overrides the file.

Unknown keys are refused.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kappa.base.errors import SettingsError
from kappa.base.sections import Durability, ServeSettings
from kappa.base.settings import load_settings
from kappa.engine.spark.cluster import cluster_of

FILE = """
[kafka]
bootstrap_servers = "file:9092"
heap = "300m"
[rollout]
soak = "90s"
hold_attempts = 2
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "kappa.toml").write_text(FILE)
    return tmp_path


def refusal(project: Path, text: str | None = None) -> SettingsError:
    """Returns the error for a project's settings, after `text` was written to its file."""
    if text is not None:
        (project / "kappa.toml").write_text(text)
    with pytest.raises(SettingsError) as told:
        load_settings(project)
    return told.value


def test_environment_beats_the_file_by_key(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAPPA__KAFKA__BOOTSTRAP_SERVERS", "environment:9092")
    monkeypatch.setenv("KAPPA__KAFKA__OPTIONS", '{"security.protocol": "SSL"}')
    monkeypatch.setenv("KAPPA__ROLLOUT__SOAK", "2h")

    settings = load_settings(project)

    kafka, rollout = settings.kafka, settings.rollout
    assert (kafka.bootstrap_servers, kafka.heap) == ("environment:9092", "300m")
    assert kafka.options == {"security.protocol": "SSL"}
    assert (rollout.soak_seconds, rollout.hold_attempts, rollout.hold_seconds) == (7200.0, 2, 10.0)


def test_given_flag_beats_both(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flag that was not given overrides neither environment nor file."""
    (project / "kappa.toml").write_text('root = "by_file"')
    monkeypatch.setenv("KAPPA__ROOT", "by_environment")

    assert load_settings(project, root="by_flag").root == "by_flag"
    assert load_settings(project, root=None).root == "by_environment"


def test_section_is_read_in_parts_and_whole(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A section comes from the environment as a whole, or key by key."""
    with (project / "kappa.toml").open("a") as file:
        file.write('[kafka.options]\nacks = "1"\nlinger = "5"\n[engine]\ncores = 1\n')
    monkeypatch.setenv("KAPPA__KAFKA", '{"heap": "1g", "options": {"acks": "2", "retries": "9"}}')
    monkeypatch.setenv("kappa__kafka__options__acks", "all")
    monkeypatch.setenv("KAPPA__ENGINE", '{"rest_after": "1e3", "cores": 2}')

    settings = load_settings(project)

    assert (settings.kafka.bootstrap_servers, settings.kafka.heap) == ("file:9092", "1g")
    assert settings.kafka.options == {"acks": "all", "linger": "5", "retries": "9"}
    assert (settings.engine.cores, settings.engine.rest_after) == (2, 1000.0)


def test_values_have_their_settings_types(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "kappa.toml").write_text(
        'durability = "process"\n[engine]\nrest_after = 5\ncores = "2"\n[jars]\ncache = "jars"\n'
    )
    monkeypatch.setenv("KAPPA__KAFKA__BOOTSTRAP_SERVERS", "null")
    monkeypatch.setenv("KAPPA__VERIFY__THREADS", "3")

    found = load_settings(project)

    assert (found.durability, found.syncs) == (Durability.PROCESS, False)
    assert (found.engine.rest_after, type(found.engine.rest_after)) == (5.0, float)
    assert (found.engine.cores, found.verify.threads) == (2, 3)
    assert (found.jars.cache, found.kafka.bootstrap_servers) == (project / "jars", "null")
    assert (found.project, found.serve) == (project, ServeSettings())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("root = 5", "root is 5: Expected `str`, got `int`"),
        ("root = {a = 5}", "root is {'a': 5}: Expected `str`, got `object`"),
        ('durability = "ssd"', "durability is 'ssd', which is not one of disk, process"),
        ("[jars]\ncache = 5", "jars.cache is 5: "),
        ("[engine]\ncores = 1.5", "engine.cores is 1.5: Expected `int`"),
        ("[engine]\ncores = true", "engine.cores is True: Expected `int`, got `bool`"),
        ("[engine]\nspares = 9", "engine.spares is 9: Expected `int` <= 8"),
        ("[engine]\nhung_seconds = 2", "engine.hung_seconds is 2: Expected `float` >= 3"),
        ("[engine]\nslice_seconds = nan", "engine.slice_seconds is nan: Expected `float`"),
        (
            '[engine]\nmemory = "2g\\n"',
            "engine.memory is '2g\\n', which is not a size in m or g, such",
        ),
        ('[serve]\nlisten = ["a"]', "serve.listen is ['a'], which is not host and port"),
    ],
)
def test_odd_value_is_named(project: Path, text: str, message: str) -> None:
    """The value has another type, or exceeds its limits."""
    told = refusal(project, text)

    line = text.count("\n", 0, len(text) - 1) + 1
    assert told.message.startswith(f"kappa.toml:{line}: {message}")


@pytest.mark.parametrize("section", ["serve", "serve.postgres", "collect"])
@pytest.mark.parametrize("place", ["8080", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:8080 "])
def test_an_address_without_host_and_port_is_refused(
    project: Path, section: str, place: str
) -> None:
    told = refusal(project, f'[{section}]\nlisten = "{place}"')

    assert told.message.startswith(f"kappa.toml:2: {section}.listen is '{place}'")
    assert "host and port, such as 127.0.0.1:8717" in str(told)


SIZE = "which is not a size in m or g, such as 512m or 4g"


def test_all_mistakes_are_told_with_their_lines_and_the_nearest_names(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A setting in the wrong section gets a hint at the right section."""
    monkeypatch.setenv("KAPPA__ENGINE__CORES", "many")
    text = """
soak = "1m"
[kafkaa]
heap = "1g"
[rollout]
hold_attempts = 0
soack = "1m"
[registry]
password = "secret-748"
[engine]
memory = "lots"
"""

    told = [(str(each.message).split(": ")[:2], each.hint) for each in refusal(project, text).each]

    assert [says for says, _ in told] == [
        ["kappa.toml:2", "soak is not a setting"],
        ["kappa.toml:3", "kafkaa is not a setting"],
        ["kappa.toml:6", "rollout.hold_attempts is 0"],
        ["kappa.toml:7", "rollout.soack is not a setting"],
        ["kappa.toml:9", "registry.password is a secret, and kappa.toml may have none"],
        ["kappa.toml:11", f"engine.memory is 'lots', {SIZE}"],
        ["KAPPA__ENGINE__CORES", "engine.cores is 'many'"],
    ]
    hints = [hint for _, hint in told]
    assert hints[:2] == ["did you mean rollout.soak?", "did you mean kafka?"]
    assert hints[3] == "did you mean rollout.soak?"


@pytest.mark.parametrize(
    ("text", "section"),
    [
        ('kafka = "localhost"', "kafka"),
        ('[[kafka]]\nheap = "1g"', "kafka"),
        ("[kafka]\nauth = 3", "kafka.auth"),
        ("[kafka]\noptions = 3", "kafka.options"),
    ],
)
def test_a_value_where_a_section_stands_is_told_how_it_begins(
    project: Path, text: str, section: str
) -> None:
    (each,) = refusal(project, text).each

    assert str(each.message).endswith(f": {section} is a section, and no single value")
    assert each.hint == f"begin it with [{section}]"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ('durability = "disc"', "durability is 'disc', which is not one of disk, ", "disk"),
        (
            '[collect.pull.x]\nkind = "mqqt"',
            "collect.pull.x.kind is 'mqqt', which is not one of sse, websocket, poll, mqtt",
            "mqtt",
        ),
        (
            '[agents]\nmay = ["stage", "promot"]',
            "agents.may is ['stage', 'promot'], which is not one of stage, promote, ",
            "promote",
        ),
        ('[kafka.auth]\nprotocol = "sasl_ssl"', "kafka.auth.protocol is 'sasl_ssl', ", "SASL_SSL"),
    ],
)
def test_a_wrong_word_has_the_nearest(project: Path, text: str, message: str, hint: str) -> None:
    """A setting that is one of several words, or a list of words, gets a hint at the right word."""
    told = refusal(project, text)

    assert told.message.partition(": ")[2].startswith(message), told.message
    assert told.hint.startswith(f"did you mean {hint}? "), told.hint


NO_JSON = "the environment cannot be read: {} is not JSON"
SOAK = "how long the build that served before"


@pytest.mark.parametrize(
    ("name", "value", "message", "hint"),
    [
        (
            *("KAPPA__KAFKA__BOOTSTRAP_SERVER", "x", "kafka.bootstrap_server is not a setting"),
            "did you mean kafka.bootstrap_servers?",
        ),
        ("KAPPA__ROLLOUT__SOAK", "long", "rollout.soak is 'long'", SOAK),
        ("KAPPA__ROLLOUT__HOLD_ATTEMPTS", "0", "rollout.hold_attempts is '0'", ""),
        ("KAPPA__KAFKAA__HEAP", "1g", "kafkaa is not a setting", "did you mean kafka?"),
        ("KAPPA__ROTO", "x", "roto is not a setting", "did you mean root?"),
        ("kappa__roto", "x", "roto is not a setting", "did you mean root?"),
        ("KAPPA__PROJECT", "/tmp", "project is not a setting", "rollout"),
        ("KAPPA__KAFKA", "{", NO_JSON, "{}__HEAP=1g"),
        ("KAPPA__KAFKA__OPTIONS", "{", NO_JSON, "{}='{{...}}'"),
    ],
)
def test_a_slip_in_the_environment_is_one_sentence_with_a_hint(
    project: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str, hint: str
) -> None:
    monkeypatch.setenv(name, value)

    told = refusal(project)

    assert told.message.removeprefix(f"{name}: ").startswith(message.format(name))
    assert hint.format(name) in told.hint


OPTION = '[kafka.options]\n"sasl.password"'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[serve]\ntoken = 748159263", "serve.token is of the type int"),
        ("serve = 748159263", "serve is a section, and no single value"),
        ('serve = "token=748159263"', "serve is a section, and no single value"),
        ("[serve]\ntoken = [748159263]", "serve.token is of the type list"),
        (f"{OPTION} = 748159263", "kafka.options.sasl.password is of the type int"),
        ('[kafka]\noptions = "748159263"', "kafka.options is a section, and no single value"),
        ("kafka = [748159263]", "kafka is a section, and no single value"),
        ("[engine]\ncores = -748", "engine.cores is -748"),
        ('[serve]\ntoken = "748159263', "cannot be read"),
    ],
)
def test_an_error_about_a_secret_shows_no_value(project: Path, text: str, message: str) -> None:
    told = refusal(project, text)

    assert message in told.message
    assert "748159263" not in str(told)


@pytest.mark.parametrize(
    "value", ['{"token": 748159263}', '"748159263"', "748159263", "{748159263"]
)
@pytest.mark.parametrize("name", ["KAPPA__SERVE", "KAPPA__KAFKA", "KAPPA__KAFKA__OPTIONS"])
def test_an_error_about_a_secret_in_the_environment_shows_no_value(
    project: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)

    assert "748159263" not in str(refusal(project))


def test_settings_that_are_printed_show_no_secret(project: Path) -> None:
    text = '[serve]\ntoken = "748159263"\n[kafka.options]\n"sasl.password" = "748159263"\n'
    (project / "kappa.toml").write_text(text)

    shown = repr(load_settings(project))
    assert "748159263" not in shown
    assert "listen='127.0.0.1:8717'" in shown
    assert "heap='512m'" in shown


@pytest.mark.parametrize("secret", ['token = "canary"', 'headers = {"X-Key" = "canary"}'])
def test_a_secret_of_a_pulled_source_is_refused_in_the_file(
    project: Path, monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    declared = '[collect.pull.shop]\nurl = "https://x/"\n'
    refused = refusal(project, declared + secret)
    assert re.match(r"kappa.toml:3: collect\.pull\.shop\.\w+ is a secret", refused.message)
    assert "KAPPA__COLLECT__PULL__SHOP__" in refused.hint
    assert "canary" not in f"{refused}{refused.hint}"
    (project / "kappa.toml").write_text(declared)
    monkeypatch.setenv("KAPPA__COLLECT__PULL__SHOP__TOKEN", "canary")
    monkeypatch.setenv("KAPPA__COLLECT__PULL__SHOP__HEADERS", '{"X-Key": "canary"}')
    settings = load_settings(project)
    pull = settings.collect.pull["shop"]
    assert (pull.url, pull.token, pull.headers) == ("https://x/", "canary", {"X-Key": "canary"})
    assert "canary" not in f"{settings}{pull}"


def test_registrys_secret_is_in_no_file(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = refusal(project, '[registry]\nuser = "kappa"\npassword = "canary"\n')
    assert "registry.password is a secret" in refused.message
    assert "KAPPA__REGISTRY__PASSWORD" in refused.hint
    assert "canary" not in f"{refused}{refused.hint}"
    (project / "kappa.toml").write_text('[registry]\nuser = "kappa"\n')
    monkeypatch.setenv("KAPPA__REGISTRY__PASSWORD", "canary")
    settings = load_settings(project)
    assert settings.registry.password == "canary"
    assert "canary" not in repr(settings)


CORES = '"spark.cores.max" = "4"'
MUCH = '"spark.executor.memory" = "much"'
YARN = 'master = "yarn"\ndriver_host = "10.0.0.5"\n'
CLUSTER = """
[engine]
master = "spark://one:7077,two:7077"
driver_host = "10.0.0.5"
[engine.conf]
"spark.executor.memory" = "4g"
"spark.dynamicAllocation.enabled" = "true"
"spark.sql.shuffle.partitions" = "64"
"spark.sql.files.maxPartitionBytes" = "64m"
"spark.task.maxFailures" = "8"
"spark.pyspark.python" = "./env/bin/python"
"spark.archives" = "env.tar.gz#env"
"spark.jars" = "/opt/more.jar"
"spark.driver.port" = "7100"
"""


def test_what_a_cluster_may_be_told_is_passed_through(project: Path) -> None:
    (project / "kappa.toml").write_text(CLUSTER)

    engine = load_settings(project).engine

    assert (engine.master, engine.driver_host) == ("spark://one:7077,two:7077", "10.0.0.5")
    assert len(engine.conf) == 9
    assert "spark.jars" not in repr(engine)


@pytest.mark.parametrize(
    "endpoint",
    [
        *("", "http://", "http://[x", "localhost:7070", "http://127.0.0.1:99999", "ftp://host"),
        *("http://host:0", "http://a b", "http://host:7070/", "http://host/bucket"),
        *("http://host?x", "http://user:secret-word@127.0.0.1:9"),
    ],
)
def test_server_of_no_bucket_is_refused_and_not_told(project: Path, endpoint: str) -> None:
    told = refusal(project, f'[storage]\nendpoint = "{endpoint}"\n')

    assert "storage.endpoint is not the URL" in told.message
    assert "http://HOST:PORT" in told.hint
    assert "secret-word" not in f"{told.message} {told.hint}"


@pytest.mark.parametrize(
    "endpoint", ["http://127.0.0.1:7070", "https://s3.example.org", "http://[::1]:7070"]
)
def test_the_server_of_a_bucket_is_a_url(project: Path, endpoint: str) -> None:
    (project / "kappa.toml").write_text(f'[storage]\nendpoint = "{endpoint}"\n')

    assert load_settings(project).storage.endpoint == endpoint


def test_what_a_host_keeps_for_itself_is_in_no_bucket(project: Path) -> None:
    told = refusal(project, 'local = "s3://bucket/local"\n')
    assert "local is s3://bucket/local" in told.message


REFUSED = (
    ("engine.master names the cluster", "spark.master"),
    ("the name of the build", "spark.app.name"),
    ("spark-submit", "spark.submit.deployMode spark.jars.packages"),
    ("the job's own Python", "spark.pyspark.driver.python"),
    ("Spark shows its settings", "spark.executorEnv.AWS_ACCESS_KEY_ID"),
    ("the same rows", "spark.executorEnv.TZ spark.sql.extensions spark.sql.ansi.enabled"),
    ("the same rows", "spark.sql.session.timeZone spark.sql.files.ignoreMissingFiles"),
    ("its own workers", "spark.executorEnv.KAPPA_SOURCES"),
    ("a second attempt", "spark.speculation spark.speculation.quantile"),
    ("engine.driver_host", "spark.driver.host"),
    ("engine.memory", "spark.driver.memory"),
    ("commits to a table", "spark.databricks.delta.retentionDurationCheck.enabled"),
    ("commits to a table", "spark.delta.logStore.s3a.impl"),
    ("Python's workers", "spark.python.daemon.module spark.python.unix.domain.socket.dir"),
    ("engine.worker_memory", "spark.executor.pyspark.memory"),
    ("without a file system", "spark.hadoop.fs.defaultFS"),
    ("for their user alone", "spark.hadoop.fs.permissions.umask-mode"),
    ("as on this machine", "spark.hadoop.fs.file.impl"),
    ("a lost task", "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version"),
    ("in the environment", "spark.hadoop.fs.s3a.secret.key"),
    ("are encrypted", "spark.hadoop.fs.s3a.connection.ssl.enabled"),
    ("begins with spark.", "executor.memory"),
)


@pytest.mark.parametrize(
    ("name", "why"), [(name, why) for why, names in REFUSED for name in names.split()]
)
def test_settings_that_decide_rows_are_refused(project: Path, name: str, why: str) -> None:
    """Settings of a cluster that decide rows are refused by name."""
    told = refusal(project, f'{CLUSTER}"{name}" = "of-the-user"\n')

    assert f": engine.conf.{name} is refused: " in told.message
    assert why in told.message
    assert "of-the-user" not in str(told)


def test_buckets_credentials_are_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hint names where workers get the credentials."""
    monkeypatch.setenv("KAPPA__ENGINE__CONF", '{"spark.executorEnv.AWS_SECRET_ACCESS_KEY": "c"}')

    refused = refusal(project)

    assert "AWS_SECRET_ACCESS_KEY is refused" in refused.message
    assert "secretKeyRef.AWS_..." in refused.hint


@pytest.mark.parametrize(
    "name",
    [
        "spark.authenticate.secret",
        "spark.ssl.keyPassword",
        "spark.ssl.ui.keyStorePassword",
        "spark.kubernetes.authenticate.submission.oauthToken",
        "spark.hadoop.fs.of_the_user.access.key",
        "spark.executorEnv.SHOP_TOKEN",
    ],
)
def test_a_secret_of_spark_is_refused_in_the_file(
    project: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    refused = refusal(project, f'{CLUSTER}"{name}" = "canary"\n')
    assert f": engine.conf.{name} is a secret" in refused.message
    assert f'KAPPA__ENGINE__CONF, as JSON: {{"{name}": "..."}}' in refused.hint
    assert "canary" not in f"{refused}{refused.hint}"
    (project / "kappa.toml").write_text(CLUSTER)
    monkeypatch.setenv("KAPPA__ENGINE__CONF", f'{{"{name}": "canary"}}')
    settings = load_settings(project)
    # What the file has is kept beside it.
    assert settings.engine.conf[name] == "canary"
    assert len(settings.engine.conf) == 10
    assert "canary" not in f"{settings}{settings.engine}{cluster_of(settings)}"


def test_the_place_of_a_secret_may_be_in_the_file(project: Path) -> None:
    places = (
        "spark.kubernetes.executor.secretKeyRef.AWS_SECRET_ACCESS_KEY",
        "spark.authenticate.secretBitLength",
        "spark.authenticate.secret.executor.file",
    )
    (project / "kappa.toml").write_text(CLUSTER + "".join(f'"{each}" = "x"\n' for each in places))

    assert {*places} < {*load_settings(project).engine.conf}


def yarn(*settings: str) -> str:
    return f"{YARN}conf = {{{', '.join(settings)}}}"


HOSTNAME = '"spark.hadoop.yarn.resourcemanager.hostname" = "h"'
STAGED = '"spark.yarn.stagingDir" = "hdfs://h/x"'
ADDRESS = '"spark.hadoop.yarn.resourcemanager.address" = "h"'
MOST = "spark.dynamicAllocation.maxExecutors"


@pytest.mark.parametrize(
    ("section", "message"),
    [
        *(
            (f'master = "{master}"', f"master is {master}, which is not a cluster")
            for master in (
                *("local[4]", "spark://one", "spark://a..b:7077", "spark://a:99999"),
                *("k8s://https://h:abc", "k8s://https://h:99999", "k8s://https://[x"),
                "k8s://https://:443",
            )
        ),
        ('master = "yarn"', "driver_host is missing"),
        ('master = "spark://one:7077"', "driver_host is missing"),
        (yarn(STAGED), "conf.spark.hadoop.yarn.resourcemanager.hostname is missing"),
        (yarn(HOSTNAME), "conf.spark.yarn.stagingDir is missing"),
        (yarn(ADDRESS), "conf.spark.hadoop.yarn.resourcemanager.address is not an address"),
        (yarn(HOSTNAME, CORES), "conf.spark.cores.max is nothing that YARN heeds"),
        (yarn(HOSTNAME, MUCH), "conf.spark.executor.memory is not a size"),
        ('conf = {"spark.cores.max" = "all"}', "conf.spark.cores.max is not a whole number"),
        (f'conf = {{"{MOST}" = "infinity"}}', f"conf.{MOST} is not a whole number"),
    ],
)
def test_a_cluster_that_cannot_be_meant_is_named(project: Path, section: str, message: str) -> None:
    told = refusal(project, f"[engine]\n{section}\n")
    assert f": engine.{message}" in told.message
