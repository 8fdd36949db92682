"""Laws of the texts and values of Postgres clients, without a server."""

from __future__ import annotations

import time
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kappa.base.sections import Role
from kappa.serving.access.accounts import Accounts
from kappa.serving.access.tokens import named_token
from kappa.serving.postgres.commands import (
    Begin,
    CopyOut,
    Declare,
    End,
    Fetch,
    Nothing,
    SelectQuery,
    SetValue,
    Show,
    command_of,
)
from kappa.serving.postgres.messages import Fields, PostgresError
from kappa.serving.postgres.parameters import parameter_sql, texts_of_array
from kappa.serving.postgres.scram import ScramExchange, Verifier, WrongPassword, verifier_of
from kappa.serving.postgres.server import Passwords
from kappa.serving.postgres.settings import SessionSettings
from kappa.serving.postgres.translation import translate
from kappa.serving.query.pin.moments import AtGeneration, AtTime
from kappa.serving.query.postgres.placeholders import (
    fill_placeholders,
    placeholders_in,
    words_of,
)
from kappa.serving.query.postgres.wire import Copy
from kappa.serving.query.postgres.wire_types import pack_numeric, unpack_numeric

QUOTES = "a '$1' \"$1\" $$ $1 $$ $x$ $1 $x$ E'\\'$1' -- $1\n /* /* $1 */ $1 */ b$1 "


@given(st.text(alphabet="a$1'\"-/*\n .:(;xE\\", max_size=60))
def test_words_of_any_text_are_the_text(sql: str) -> None:
    """No character of a text is lost when the text is split into words."""
    assert "".join(each.text for each in words_of(sql)) == sql


def test_no_value_is_put_into_a_quote() -> None:
    """Within quotes, dollar quotes, comments or names, `$1` is not a parameter."""
    assert placeholders_in(QUOTES + "$2") == (2,)
    assert fill_placeholders(QUOTES + "$2", {1: "x", 2: "y"}) == QUOTES + " y "


@given(st.text(max_size=30))
def test_a_text_value_stays_one_literal(value: str) -> None:
    """Any text from a client becomes exactly one quoted word of the statement."""
    if "\0" in value or not value.isprintable():
        value = value.replace("\0", "")
    sql = parameter_sql(value.encode(errors="replace"), 0, binary=False)

    assert [each.kind for each in words_of(sql)] == ["text"]


@pytest.mark.parametrize(
    ("asked", "given_sql"),
    [
        ("select * from pg_catalog.pg_class c", "select * from kappa_catalogue.pg_class c"),
        ("select * from pg_type, pg_class", None),
        (
            "select * from information_schema.tables",
            'select * from kappa_catalogue."information_schema.tables"',
        ),
        ("select 'a.b'::regclass", "select kappa_catalogue._regclass('a.b')"),
        ("select c.oid::pg_catalog.regclass", "select c.oid::bigint"),
        (
            "select c.relname OPERATOR(pg_catalog.~) '^(a)$' COLLATE pg_catalog.default",
            "select c.relname  ~  '^(a)$' ",
        ),
        ("select current_user, 1", "select 'me' as current_user, 1"),
        ("select x from t where u = current_user", "select x from t where u = 'me'"),
        ("select pg_catalog.current_schemas(true)", "select ['pg_catalog', 'public']"),
        ("select current_setting('jit'::text)", "select 'off' as current_setting"),
        ("select * from public.delays", "select * from main.delays"),
        ("select a.public.x from a", "select a.public.x from a"),
        ('from "kappa"."public"."delays"', 'from main."delays"'),
        ("select kappa.delays.n from kappa.delays", "select kappa.delays.n from kappa.delays"),
        ("select 'pg_catalog.pg_class', \"current_user\"() ", None),
        ("select version, 'version()' from t", "select version, 'version()' from t"),
        ("x = any('{a,\"b c\"}')", "x = any(['a', 'b c'])"),
    ],
)
def test_clients_own_words_are_translated(asked: str, given_sql: str | None) -> None:
    """Words that ask about the client are translated; quotes, columns and all else stay."""
    found = translate(asked, user="me", setting={"jit": "off"}.get)

    if given_sql is not None:
        assert found.sql == given_sql
    else:
        assert "pg_class'" not in found.sql or "'pg_catalog.pg_class'" in found.sql
    assert found.catalogue == ("kappa_catalogue" in found.sql)


@given(st.text(alphabet="selct fromt*'\"1,().=", max_size=50))
def test_texts_without_such_words_stay(sql: str) -> None:
    """A text without a word that is special to Postgres stays the same, to the character."""
    assert translate(sql, user="me", setting=lambda _name: None).sql == sql


@pytest.mark.parametrize(
    ("sql", "command"),
    [
        ("BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY", Begin()),
        ("start transaction", Begin("START TRANSACTION")),
        ("end", End(commits=True)),
        ("ROLLBACK", End(commits=False)),
        ("rollback to savepoint a", Nothing("ROLLBACK", goes_back=True)),
        ("set kappa.at to '2026-01-01 00:00'", SetValue("kappa.at", "2026-01-01 00:00")),
        ("SET LOCAL x = default", SetValue("x", None, local=True)),
        ("set session time zone 'UTC'", SetValue("timezone", "UTC")),
        ("show time zone", Show("TimeZone")),
        ("declare c no scroll cursor for select $1 >= 2", None),
        ("fetch forward 10 from c", Fetch("c", 10, moves=False)),
        ("MOVE ALL IN c", Fetch("c", None, moves=True)),
        ("copy (select 1 >= 2) to stdout", CopyOut("select 1 >= 2", Copy())),
        (
            "copy s.t (a, b) to stdout with (format csv, header, null 'x')",
            CopyOut("select a, b from s.t", Copy("csv", header=True, delimiter=",", null="x")),
        ),
        ("COPY t TO STDOUT BINARY", CopyOut("select * from t", Copy("binary"))),
        ("with a as (select 1) from a", SelectQuery("with a as (select 1) from a")),
    ],
)
def test_commands_are_read_from_their_text(sql: str, command: object) -> None:
    """A session's own commands are recognized by their words; everything else is a query."""
    if command is None:
        command = Declare("c", "select $1 >= 2", hold=False)
    assert command_of(sql) == command


@given(
    st.decimals(
        allow_nan=False, allow_infinity=False, places=9, min_value=-(10**25), max_value=10**25
    )
)
def test_numbers_are_packed_and_unpacked(number: Decimal) -> None:
    """A number has the same value in text form and in binary form."""
    assert Decimal(unpack_numeric(pack_numeric(f"{number:f}"))) == number


@given(st.lists(st.none() | st.text(alphabet='a"\\, {}N', max_size=4), max_size=4))
def test_values_of_an_array_come_back(values: list[str | None]) -> None:
    """An array's text is parsed to the values from which it was written."""
    written = ",".join(
        "NULL" if each is None else '"' + each.replace("\\", "\\\\").replace('"', '\\"') + '"'
        for each in values
    )
    assert list(texts_of_array("{" + written + "}")) == values


@pytest.mark.parametrize("written", [" " * 60_000 + "{", '"' + "\\" * 60_001, "a" * 60_000 + "{"])
def test_an_array_of_any_text_is_read_at_once(written: str) -> None:
    """An array of any text is parsed quickly, because all clients share the server.

    A text of blanks once blocked everybody for minutes.
    """
    begun = time.process_time()
    with pytest.raises(PostgresError):
        texts_of_array("{" + written + "}")

    assert time.process_time() - begun < 5


def test_a_number_of_many_digits_is_no_parameter() -> None:
    """A parameter number with more digits than Python reads is not a parameter."""
    sql = "select $1, $" + "1" * 5_000 + ", $٣"

    assert placeholders_in(sql) == (1,)
    assert fill_placeholders(sql, {1: "x"}) == sql.replace("$1,", " x ,")


@pytest.mark.parametrize("content", [b"\0\0", b"12345678"])
def test_a_value_of_a_wrong_size_is_refused(content: bytes) -> None:
    """A binary value with a wrong size for its type is the client's error, with its code."""
    with pytest.raises(PostgresError) as refused:
        parameter_sql(content, 23, binary=True)

    assert refused.value.code == "22P03"


def test_a_message_that_is_too_short_is_fatal() -> None:
    """A message that ends too soon is never read beyond its end."""
    for content, read in [
        (b"no end", lambda fields: fields.text()),
        (b"\0\5\0\0", lambda fields: fields.listed("i")),
        (b"ab", lambda fields: fields.raw(3)),
        (b"ab", lambda fields: fields.raw(-1)),
    ]:
        with pytest.raises(PostgresError) as refused:
            read(Fields(content))
        assert refused.value.fatal


def test_the_password_exchange_is_that_of_rfc_7677() -> None:
    """The exchange sends exactly the messages of the example in RFC 7677."""
    import base64

    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    exchange = ScramExchange(verifier_of("pencil", salt), "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")

    first = exchange.answer_first("n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert first == (
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    final = (
        "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        "p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert exchange.answer_final(final) == "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize("change", ["c=biwt", "r=other", "p=AAAA", "p=****"])
def test_a_changed_exchange_is_refused(change: str) -> None:
    """Each part of the final message must be unchanged."""
    exchange = ScramExchange(verifier_of("pencil", b"salt", 10), "own")
    exchange.answer_first("n,,n=,r=theirs")
    parts = {"c": "c=biws", "r": "r=theirsown", "p": f"p={'A' * 43}="} | {change[0]: change}

    with pytest.raises(WrongPassword):
        exchange.answer_final(",".join(parts.values()))


@pytest.mark.parametrize("first", ["", "p=tls-unique,,n=,r=x", "n,,n=", "n,,m=x,r=y", "n"])
def test_a_first_message_out_of_form_is_refused(first: str) -> None:
    """A channel that was not offered, or a message without a nonce, is refused."""
    with pytest.raises(WrongPassword):
        ScramExchange(verifier_of("pencil", b"salt", 10)).answer_first(first)


def test_settings_choose_one_moment_of_the_past() -> None:
    """The last of time and generation counts, and a rollback reverts it."""
    settings = SessionSettings("me")
    settings.put("kappa.at", "2026-01-01T00:00:00Z")
    settings.begin()
    settings.put("kappa.generation", "3")
    assert settings.when() == AtGeneration(3)
    settings.end(committed=False)
    assert isinstance(settings.when(), AtTime)
    settings.begin()
    settings.put("kappa.at", "", local=True)
    assert settings.when() is None
    settings.end(committed=True)
    assert isinstance(settings.when(), AtTime)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kappa.at", "yesterday"),
        ("kappa.generation", "-1"),
        ("kappa.generatoin", "3"),
        ("client_encoding", "latin1"),
        ("datestyle", "german"),
        ("bytea_output", "escape"),
        ("server_version", "1"),
    ],
)
def test_settings_that_would_lie_are_refused(name: str, value: str) -> None:
    """No setting may change the form in which values are written."""
    with pytest.raises(PostgresError):
        SessionSettings("me").put(name, value)


def test_salts_do_not_tell_who_has_a_token(tmp_path: Path) -> None:
    """A user without a token also has a salt, which is stable across restarts."""
    named = named_token("grafana", "kappa_a-token-of-grafana", [Role.READ])

    def salts() -> list[Verifier]:
        passwords = Passwords(Accounts(token="t" * 32, given=[named], key_file=tmp_path / "key"))
        found = [passwords.check_token(user) for user in ("grafana", "ada", "bob")]
        assert passwords.check_token("ada") == found[1]
        return [each for each in found if each is not None]

    first = salts()
    assert salts() == first
    assert len({each.salt for each in first}) == 3
    assert len({(len(each.salt), each.rounds) for each in first}) == 1
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
