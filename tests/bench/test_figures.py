"""Figures come only from equal results, and ratios only from runs that followed each other."""

from __future__ import annotations

from typing import Any

from figures import Figure, Round, Spread, Warm, comparable, figures


def ran(number: int, rival: str, wall: float, **more: Any) -> Round:
    return Round(number, rival, 1000, **{"wall": wall, "cpu": wall, "rss": 1, "load": 0.1, **more})


def of(rival: str, rounds: list[Round]) -> Figure:
    (found,) = (
        figure for figure in figures(rounds, ("kappa", "spark"), {}) if figure.rival == rival
    )
    return found


def test_a_ratio_is_taken_round_by_round() -> None:
    # The machine was ten times slower in the second round, for both.
    rounds = [
        ran(1, "kappa", 1.0),
        ran(1, "spark", 2.0),
        ran(2, "kappa", 10.0),
        ran(2, "spark", 30.0),
        ran(3, "kappa", 1.0),
        ran(3, "spark", 2.5),
    ]

    found = of("spark", rounds)

    assert found.cold_ratio == Spread(2.5, 2.0, 3.0)
    assert found.cpu_ratio == Spread(2.5, 2.0, 3.0)
    assert found.cold == Spread(400.0, 1000 / 30, 500.0)
    assert of("kappa", rounds).cold_ratio is None


def test_warm_rates_are_compared_only_where_both_were_warm() -> None:
    rounds = [
        ran(1, "kappa", 1.0, warm=Warm(900, 1.0)),
        ran(1, "spark", 2.0, warm=Warm(500, 2.0)),
        ran(2, "kappa", 1.0),
        ran(2, "spark", 2.0, warm=Warm(500, 1.0)),
    ]

    found = of("spark", rounds)

    assert found.warm == Spread(375.0, 250.0, 500.0)
    assert found.warm_ratio == Spread(3.6, 3.6, 3.6)


def test_one_result_that_is_not_equal_takes_all_of_a_rivals_figures() -> None:
    rounds = [
        ran(1, "kappa", 1.0),
        ran(1, "spark", 1.0),
        ran(2, "kappa", 1.0),
        ran(2, "spark", 1.0, refused="7 rows differ", unequal=True),
    ]

    assert of("spark", rounds) == Figure("spark", 0, refused="7 rows differ")


def test_a_round_that_failed_is_told_and_leaves_the_others() -> None:
    rounds = [
        ran(1, "kappa", 1.0),
        ran(1, "spark", 2.0),
        ran(2, "kappa", 1.0),
        ran(2, "spark", 0.0, refused="it died"),
    ]

    found = of("spark", rounds)

    assert (found.rounds, found.cold_ratio, found.refused) == (1, Spread(2.0, 2.0, 2.0), "it died")


def test_a_rival_without_kappa_beside_it_has_no_ratio() -> None:
    rounds = [ran(1, "kappa", 0.0, refused="it died"), ran(1, "spark", 2.0)]

    assert of("spark", rounds).cold_ratio is None
    assert of("kappa", rounds).rounds == 0


def test_who_could_not_be_set_up_is_told() -> None:
    found = figures([ran(1, "kappa", 1.0)], ("kappa", "spark", "flink"), {"flink": "no compiler"})

    assert [figure.refused for figure in found] == [None, "not run yet", "no compiler"]


def test_a_line_to_compare_holds_ratios_only() -> None:
    rounds = [
        ran(1, "kappa", 1.0, warm=Warm(900, 1.0)),
        ran(1, "spark", 2.0, warm=Warm(450, 1.0)),
        ran(2, "kappa", 1.0),
        ran(2, "spark", 3.0),
    ]

    line = comparable(
        "quick",
        1000,
        10,
        figures(rounds, ("kappa", "spark", "flink"), {"flink": "no compiler"}),
        Spread(0.2, 0.1, 0.3),
    )

    assert line == (
        "bench quick, 1000 events, 10 keys: kappa against spark: cold 2.5 (2-3) warm 2 (2-2) "
        "cpu 2.5 (2-3); flink: no ratio; load 0.1-0.3"
    )
