"""Table, page and plot show the same figures; a rival without figures is shown with a reason."""

from __future__ import annotations

import io
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from figures import Round, Warm
from plot import plot
from rich.console import Console
from rounds import Run
from screen import footing, grid, page, per_core, placed, refusals, title, told, with_ages

RIVALS = ("kappa", "spark", "flink", "polars")
SVG = "{http://www.w3.org/2000/svg}"


def run(load: float = 0.1) -> Run:
    found = Run(
        "quick",
        "totals",
        1_000_000,
        16_384,
        "c0de",
        "2026-01-31 10:00 UTC",
        "Some <CPU> & more",
        missing={"flink": "could not be set up: no pip"},
    )
    found.versions["spark"] = {"pyspark": "4.2.0"}
    for number, wall in ((1, 2.0), (2, 4.0)):
        found.put(Round(number, "kappa", 1_000_000, wall, 3.0, 2**31, load, Warm(500_000, 0.5)))
        found.put(Round(number, "spark", 1_000_000, 2 * wall, 6.0, 2**30, load))
        found.put(
            Round(
                number,
                "polars",
                1_000_000,
                1.0,
                1.0,
                1,
                load,
                refused="its result is not the oracle's: 1 < 2",
                unequal=True,
            )
        )
    return found


def printed(found: Run) -> str:
    console = Console(file=io.StringIO(), width=180)
    console.print(grid(found, told(found, RIVALS), 2))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_table_tells_each_rival_with_its_spread() -> None:
    text = printed(run())

    (spark,) = (line for line in text.splitlines() if "spark" in line)
    assert [cell.strip() for cell in spark.split("│")[1:-1]] == [
        "spark",
        "2",
        "6.0 (4.0-8.0)",
        "187,500 (125,000-250,000)",
        "",
        "6.00",
        "1.00",
        "2",
        "",
        "2",
    ]
    (polars,) = (line for line in text.splitlines() if "polars" in line)
    assert not any(letter.isdigit() for letter in polars)


def test_who_has_no_figure_is_named_with_the_reason() -> None:
    assert refusals(told(run(), RIVALS)) == [
        "flink: could not be set up: no pip",
        "polars: its result is not the oracle's: 1 < 2",
    ]
    assert "No figure of flink: could not be set up: no pip." in page(run(), told(run(), RIVALS), 2)


def test_who_was_not_asked_yet_is_not_told() -> None:
    assert [figure.rival for figure in told(run(), ("consume", *RIVALS))] == list(RIVALS)


def test_versions_are_told_with_the_figures() -> None:
    assert page(run(), told(run(), RIVALS), 2).endswith("\nversions: spark: pyspark 4.2.0.\n")


def test_a_busy_machine_is_told() -> None:
    assert "only ratios count" not in footing(run(0.4), 2)
    assert "only ratios count" in footing(run(0.6), 2)


def test_what_one_core_does_is_the_warm_rate_shared() -> None:
    assert per_core(told(run(), RIVALS), 2) == ["kappa: 500,000 events a second per core, warm"]


def test_the_plot_is_xml_with_a_bar_for_each_figure_that_reaches_as_far_as_it_says() -> None:
    found = run()
    drawn = ET.fromstring(plot(title(found), footing(found, 2), told(found, RIVALS)))

    bars = [float(bar.get("width", "0")) for bar in drawn.iter(f"{SVG}rect")][1:]
    # Kappa with start-up and warm, then spark with start-up; the scale ends at 1M.
    assert [round(bar / bars[1], 3) for bar in bars] == [0.375, 1.0, 0.188]
    texts = [text.text for text in drawn.iter(f"{SVG}text")]
    assert "375k" in texts
    assert "188k" in texts
    assert "flink" not in texts


def test_a_plot_of_nothing_is_a_plot() -> None:
    ET.fromstring(plot("nothing", "", ()))


def test_a_page_holds_the_section_of_a_cell_and_keeps_all_else() -> None:
    document = "before\n<!-- bench:quick -->\nold\n<!-- /bench:quick -->\nafter\n"

    once = placed(document, "quick", "new\n")

    assert once == "before\n<!-- bench:quick -->\nnew\n<!-- /bench:quick -->\nafter\n"
    assert placed(once, "quick", "new") == once
    with pytest.raises(ValueError, match="no place for other"):
        placed(document, "other", "new")


def test_sections_older_than_the_release_are_marked() -> None:
    changelog = "# C\n\n## Unreleased\n\n## 0.3.0 (2026-05-02)\n\n## 0.2.0 (2026-01-01)\n"
    mark = "*Older than release 0.3.0: these figures are of earlier code.*\n\n"
    begin, end = "<!-- bench:{} -->\n", "<!-- /bench:{} -->"

    def document(old: str) -> str:
        return "\n".join(
            f"{begin.format(cell)}{text}\n{end.format(cell)}"
            for cell, text in (
                ("old", f"{old}machine; 2026-05-01\n23:59 UTC."),
                ("new", "begun 2026-05-02 00:00 UTC."),
                ("none", "Not measured yet."),
            )
        )

    assert with_ages(document(""), changelog) == document(mark)
    # A mark is not put twice, is that of the newest release, and goes with new figures.
    assert with_ages(document(mark), changelog) == document(mark)
    assert with_ages(document(mark.replace("0.3", "0.2")), changelog) == document(mark)
    assert with_ages(document(mark), changelog.replace("05-02", "05-01")) == document("")


def test_the_page_marks_each_section_that_is_older() -> None:
    tree = Path(__file__).resolve().parents[2]
    document = (tree / "docs" / "performance.md").read_text(encoding="utf-8")

    assert with_ages(document, (tree / "CHANGELOG.md").read_text(encoding="utf-8")) == document
