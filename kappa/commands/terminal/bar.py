"""The bar of a step that counts: shown only on a terminal, with the rate beside it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kappa.base.units import growth
from kappa.commands.terminal.output import is_quiet, talk

if TYPE_CHECKING:
    from rich.console import Console


@contextlib.contextmanager
def bar(
    text: str, total: int | None, *, console: Console | None = None
) -> Iterator[Callable[[int, int], None]]:
    """Shows a bar on stderr while the block runs; without a terminal or with --quiet, nothing.

    Yields a function that takes the number of acknowledged records and the part of `total` that has
    been read. With an unknown total (None), the bar moves without an end. At the end the bar
    disappears.
    """
    on = talk() if console is None else console
    if is_quiet() or not on.is_terminal:
        yield lambda count, taken: None  # noqa: ARG005  # nobody looks
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    began = time.monotonic()
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, console=on, transient=True) as progress:
        task = progress.add_task(text, total=total)

        def show(count: int, taken: int) -> None:
            rate = growth(0, count, max(time.monotonic() - began, 0.001))
            progress.update(
                task,
                completed=taken,
                description=f"{text}: {count:,} acknowledged, {rate:,.0f} a second",
            )

        yield show
