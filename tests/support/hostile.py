"""Texts and numbers that a stranger, or a language model, may give for any argument."""

from __future__ import annotations

TEXTS = (
    *(
        "",
        " ",
        "\0",
        "\ud800",
        "\u202e\u2066",
        "x" * 100_000,
        "日" * 10_000,
        "\r\n",
        "'",
        '"',
        "%s{0}",
    ),
    *("../../etc/passwd", "--help", "-o", "page_hits\0", "web.rejects.rejects", ".", "..", "a.b.c"),
    *(
        "1e999",
        "-1",
        "9" * 5_000,
        "NaN",
        "null",
        "((" * 5_000,
        "$$",
        "/*" * 5_000,
        "select 1; select 2",
    ),
)
NUMBERS = (-1, 0, 2**31, 2**63, -(2**64))
