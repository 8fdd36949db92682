"""The bench of formats compares the rows of each format with the rows of the log."""

from __future__ import annotations

from pathlib import Path

import duckdb
import formats


def test_each_format_has_the_rows_of_the_log(tmp_path: Path) -> None:
    report = formats.main(tmp_path, 1, events=2_000)

    assert report is not None
    assert report.line.startswith("bench formats, 2000 events: JSON ")
    assert all(f"| {name} |" in report.page for name in ("JSON", "framed JSON", "Avro", "CSV"))


def test_another_row_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    with duckdb.connect() as bids:
        bids.execute("set timezone = 'UTC'")
        bids.execute(
            "create table bids as select 1 as auction, 2 as bidder, 0.5 as price, "
            "null::varchar as channel, 'u' as url, timestamp '2024-01-01' as at, true as first"
        )
        for price, same in ((0.5, True), (0.25, False)):
            bids.execute(
                f"copy (select * replace ({price} as price), 0 as _fate from bids) to '{file}'"
            )
            assert formats.equal_rows(bids, file) is same
        bids.execute(f"copy (select *, 0 as _fate from bids, range(2)) to '{file}'")
        assert formats.equal_rows(bids, file) is False
