"""Laws of a board's file: its declarations are read, and each mistake is named with its cure."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

import pytest

from kappa.base.errors import DeclarationError
from kappa.declare.board import MOST_CHARTS, Board, Chart, ChartKind, board_of, boards_in

TREE = Path(__file__).parents[3]
CHART = '[[chart]]\ntitle = "Hits"\nkind = "number"\nsql = "select 1"\n'
GOOD = f'title = "Pages"\n{CHART}'


def mistake(text: str | bytes) -> tuple[str, str]:
    content = text if isinstance(text, bytes) else text.encode()
    with pytest.raises(DeclarationError) as found:
        board_of(content, "boards/pages.toml")
    return found.value.message, found.value.hint


def test_a_board_is_its_title_and_its_charts_in_order() -> None:
    bars = '[[chart]]\ntitle = "Größte"\nkind = "bars"\nsql = "from t"\nwidth = 4\n'

    assert board_of(f"{GOOD}{bars}".encode(), "boards/pages.toml") == Board(
        "Pages",
        (
            Chart("Hits", ChartKind.NUMBER, "select 1", 1),
            Chart("Größte", ChartKind.BARS, "from t", 4),
        ),
    )


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ('title "x"', r"boards/pages\.toml is not TOML: .*line 1", r"\[\[chart\]\]"),
        (b"title = '\xff'", "is not TOML", "a board is"),
        ("x = " + "[" * 20_000, "is not TOML", "a board is"),
        (CHART, r"^boards/pages\.toml has no title$", 'write: title = "'),
        (f"title = 7\n{CHART}", "has no text as its title: 7", 'write: title = "'),
        (f'title = " "\n{CHART}', "has no text as its title: ' '", 'write: title = "'),
        (f'titel = "x"\n{CHART}', r"a board has no key 'titel'", "did you mean title"),
        ('title = "x"', "has no charts", r"\[\[chart\]\]"),
        ('title = "x"\nchart = []', "has no charts", r"\[\[chart\]\]"),
        ('title = "x"\n[chart]\ntitle = "y"', "chart is not a list of charts", r"\[\[chart\]\]"),
        ('title = "x"\nchart = [1]', "chart is not a list of charts", r"\[\[chart\]\]"),
        (
            GOOD.replace("sql", "sqll"),
            r"boards/pages\.toml:2: chart 1: a chart has no key 'sqll'",
            "did you mean sql",
        ),
        (GOOD.replace('sql = "select 1"', ""), r"toml:2: chart 1 has no sql$", 'sql = "select'),
        (GOOD.replace('"select 1"', "1"), r"chart 1 has no text as its sql: 1", "write: sql"),
        (GOOD.replace("number", "pie"), "chart 1: there is no kind 'pie'", "number, line, bars, t"),
        (GOOD.replace("number", "bar"), "there is no kind 'bar'", "did you mean bars"),
        (f"{GOOD}width = 5\n", "width is 5, and the grid has 4 columns", "width = 2"),
        (f'{GOOD}width = "2"\n', "width is '2'", "from 1 to 4"),
        (f"{GOOD}width = true\n", "width is True", "from 1 to 4"),
        (
            f"{GOOD}\n{CHART}",
            r"boards/pages\.toml:7: chart 2 has the title 'Hits', which an earlier chart has",
            "a title of its own",
        ),
        (
            f'title = "x"\n{"".join(CHART.replace("Hits", str(n)) for n in range(25))}',
            f"has 25 charts, and a board has 1 to {MOST_CHARTS}",
            "another board",
        ),
    ],
)
def test_mistake_is_named_with_what_to_type(text: str | bytes, message: str, hint: str) -> None:
    """A mistake is named with its file, its key, and what to type instead."""
    told = mistake(text)

    assert re.search(message, told[0])
    assert re.search(hint, told[1])


def test_a_line_that_may_be_another_ones_is_not_named() -> None:
    text = f'{GOOD}[[chart]]\ntitle = "x"\nkind = "pie"\nsql = """\n[[chart]]\n"""\n'

    assert mistake(text)[0] == "boards/pages.toml: chart 2: there is no kind 'pie'"


def test_a_file_with_a_mistake_costs_the_other_boards_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "boards"
    folder.mkdir()
    (folder / "good.toml").write_text(GOOD, encoding="utf-8")
    (folder / "empty.toml").touch()
    (folder / ".#good.toml").write_text("an editor's", encoding="utf-8")
    (folder / "large.toml").write_text(f"# {'x' * (256 << 10)}\n{GOOD}", encoding="utf-8")
    (folder / "folder.toml").mkdir()
    (folder / "notes.txt").touch()
    found = boards_in(tmp_path)

    assert list(found) == ["empty", "folder", "good", "large"]
    assert isinstance(found["good"], Board)
    assert [getattr(found[name], "message", "") for name in ("empty", "folder", "large")] == [
        "boards/empty.toml has no title",
        "boards/folder.toml cannot be read: Is a directory",
        "boards/large.toml has more than 262,144 bytes",
    ]


def test_two_files_whose_names_look_alike_are_refused(tmp_path: Path) -> None:
    (tmp_path / "boards").mkdir()
    for form in ("NFC", "NFD"):
        name = unicodedata.normalize(form, "große Übersicht")
        (tmp_path / "boards" / f"{name}.toml").write_text(GOOD, encoding="utf-8")
    found = boards_in(tmp_path)

    assert list(found) == ["große Übersicht"]
    assert "is there twice" in str(found["große Übersicht"])


def test_a_project_without_boards_has_none(tmp_path: Path) -> None:
    assert boards_in(tmp_path) == {}
    (tmp_path / "boards").touch()
    assert boards_in(tmp_path) == {}


def test_the_boards_of_this_tree_and_of_its_pages_are_right() -> None:
    shown = re.findall(
        r"```toml\n(.*?)```",
        (TREE / "docs" / "howto" / "boards.md").read_text(encoding="utf-8"),
        re.DOTALL,
    )

    assert shown
    for text in shown:
        assert board_of(text.encode(), "boards/example.toml").charts
    assert all(isinstance(each, Board) for each in boards_in(TREE).values())
    assert (TREE / "demo" / "flights.toml").resolve() == TREE / "boards" / "flights.toml"
