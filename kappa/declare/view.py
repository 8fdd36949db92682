"""Views: queries over the tables of a pipeline, which the pipeline's file declares. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kappa.base.errors import DeclarationError
from kappa.base.source import Source
from kappa.declare.options import Thresholds, check_name, describe_value, thresholds_of, words_of


@dataclass(frozen=True, slots=True, init=False)
class View:
    """A query under a `name`, over the pipeline's own tables, for example for joins and ratios.

    `sql` is a query in DuckDB's SQL. The query can use the pipeline's own tables and views, but no
    clock, no random function and no file. Without `keys` and `by`, the query is run when the view
    is read.

    With `keys` or `by`, the view is maintained: its rows are stored, and at every frontier they are
    exactly the rows of the query over the tables at that frontier. `keys` are the columns that
    identify a row. If rows have no key but belong together in groups (such as all bids of an
    auction), `by` names the columns that identify a group; the default is the keys. A maintained
    view may have `checks`, `max_added`, `max_removed` and `max_changed`, like a table. `expire` and
    `after` are not allowed: rows disappear from a view when the rows of its tables expire.

    Example:
        View("busy_pages", "select page, visits from page_visits where visits > 100")
        View("best", "select id, max(price) as price from bids group by id", keys=("id",))
    """

    name: str
    sql: str
    keys: tuple[str, ...]
    by: tuple[str, ...]
    checks: tuple[str, ...]
    thresholds: Thresholds
    source: Source = field(compare=False)

    def __init__(
        self,
        name: str,
        sql: str,
        *,
        keys: Sequence[str] = (),
        by: Sequence[str] = (),
        checks: Sequence[str] = (),
        max_added: float | None = None,
        max_removed: float | None = None,
        max_changed: float | None = None,
        expire: None = None,
        after: None = None,
    ) -> None:
        source = Source.of_caller()
        check_name(source, "view", name)
        if expire is not None or after is not None:
            raise DeclarationError(
                f"{source}: view {name} has expire or after, and its rows end with its tables'",
                hint="let the rows of a table that it reads expire",
            )
        if not isinstance(sql, str) or not sql.strip():
            given = "no query" if isinstance(sql, str) else f"{describe_value(sql)} for its query"
            raise DeclarationError(
                f"{source}: view {name} has {given}",
                hint=f'write the query as text: View("{name}", "select ... from ...")',
            )
        where = f"{source}: view {name}"
        keys = words_of(where, "keys", keys, '("id",)')
        by = words_of(where, "by", by, '("id",)')
        checks = words_of(where, "checks", checks, '["visits > 0"]')
        for what, columns in (("keys", keys), ("by", by)):
            wrong = next((each for each in columns if each.startswith("_") or not each), None)
            if wrong is not None:
                raise DeclarationError(
                    f"{where} has {describe_value(wrong)} among its {what}",
                    hint="a leading underscore marks the platform's own columns",
                )
            if len(set(columns)) < len(columns):
                raise DeclarationError(f"{where} has a column twice among its {what}")
        if not set(by) <= set(keys) and keys:
            raise DeclarationError(
                f"{where} has keys, and its rows belong together by a column that is not a key",
                hint="rows that have keys belong together by some of them: leave by out,"
                " or take keys out",
            )
        is_maintained = bool(keys or by)
        thresholds = thresholds_of(
            where, max_added, max_removed, max_changed, keyed=bool(keys) or not is_maintained
        )
        if not is_maintained and (checks or thresholds != Thresholds()):
            raise DeclarationError(
                f"{where} has {'checks' if checks else 'a threshold'}, and is not maintained",
                hint="give it keys: then it is stored, checked and compared as a table is",
            )
        set_field = object.__setattr__
        set_field(self, "name", name)
        set_field(self, "sql", sql.strip().rstrip(";"))
        set_field(self, "keys", keys)
        set_field(self, "by", by or keys)
        set_field(self, "checks", checks)
        set_field(self, "thresholds", thresholds)
        set_field(self, "source", source)

    @property
    def part_name(self) -> str:
        """Returns the name of the view in a version's list of its parts.

        The name is `view NAME`, or `maintained view NAME`.
        """
        return f"{'maintained view' if self.is_maintained else 'view'} {self.name}"

    @property
    def is_maintained(self) -> bool:
        """Returns True if the rows of the view are stored."""
        return bool(self.by)
