"""Why a record is not valid: the words for machines, and how what was found is told to people. Pure.

Read next: record.py, whose verdicts these are.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any


class Reason(StrEnum):
    """Why a record is not valid, in a word for machines."""

    NULL_VALUE = "null_value"
    NULL_KEY = "null_key"
    KEY_NOT_UTF8 = "key_not_utf8"
    BAD_KEY = "bad_key"
    KEY_MISMATCH = "key_mismatch"
    NOT_UTF8 = "not_utf8"
    BYTE_ORDER_MARK = "byte_order_mark"
    MALFORMED = "malformed_json"
    NOT_AN_OBJECT = "not_an_object"
    REPEATED_FIELD = "repeated_field"
    LONE_SURROGATE = "lone_surrogate"
    TOO_DEEP = "too_deep"
    MISSING = "missing_field"
    WRONG_TYPE = "wrong_type"
    OUT_OF_RANGE = "out_of_range"
    BAD_FORMAT = "bad_format"
    AGAINST_SCHEMA = "against_schema"
    BAD_REDRIVE = "bad_redrive"
    # The record itself is valid, and the pipeline's function fails on it (engine/function/culprits.py).
    FUNCTION_FAILED = "function_failed"
    LATE = "late"


class Rejected(Exception):  # a verdict about a record, not a mistake of the program
    """The record is not valid: the word for machines, and a sentence for people."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def kind_of(found: Any) -> str:
    """What sort of JSON value it is, with the value where it is short."""
    match found:
        case None:
            return "null"
        case bool():
            return "true or false"
        case str():
            return f"the text {shown(found)}"
        case int():
            return f"the whole number {shown(found)}"
        case list():
            return "an array"
        case dict():
            return "an object"
        case _:
            return f"the number {shown(found)}"


def shown(found: Any) -> str:
    """What was found, in at most 80 characters."""
    # Rejects are kept and read: one wild record must not fill them, nor half a surrogate stop them.
    text = json.dumps(found, ensure_ascii=False) if isinstance(found, str) else str(found)
    text = text.encode(errors="backslashreplace").decode()
    return text if len(text) <= 80 else f"{text[:77]}..."
