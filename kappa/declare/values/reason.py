"""The reasons why a record is not valid, as words for programs and sentences for display. Pure."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any


class Reason(StrEnum):
    """The reason why a record is not valid, as a word that programs can compare."""

    NULL_VALUE = "null_value"
    NULL_KEY = "null_key"
    KEY_NOT_UTF8 = "key_not_utf8"
    BAD_KEY = "bad_key"
    KEY_MISMATCH = "key_mismatch"
    NOT_UTF8 = "not_utf8"
    BYTE_ORDER_MARK = "byte_order_mark"
    MALFORMED = "malformed_json"
    MALFORMED_CSV = "malformed_csv"
    NO_MATCH = "no_match"
    MALFORMED_AVRO = "malformed_avro"
    MALFORMED_PROTOBUF = "malformed_protobuf"
    MALFORMED_CHANGE = "malformed_change"
    # Of a schema registry: a value without an id, an id that the registry does not know, and a
    # schema that does not fit the declared schema.
    NO_SCHEMA_ID = "no_schema_id"
    UNKNOWN_SCHEMA = "unknown_schema"
    SCHEMA_MISMATCH = "schema_mismatch"
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
    # The record is valid, but the pipeline's function fails on it
    # (engine/function/failing_records.py).
    FUNCTION_FAILED = "function_failed"
    # The record is valid, but its order among records of other partitions is not known.
    UNORDERED = "unordered"
    # A step fails when it is woken: the key's last record is folded, and this time is dropped.
    WAKE_FAILED = "wake_failed"
    # A key of an ordered fold has records in a lower partition, too. The record is folded, into a
    # state that readers do not see (engine/fold/step_loop.py).
    SPLIT_KEY = "split_key"
    LATE = "late"
    # The record is valid, but contributes to a row that is gone (engine/function/expired_rows.py).
    EXPIRED = "expired"


# The records that have these reasons are folded: the rejects table only tells of them.
FOLDED_REASONS = frozenset({Reason.WAKE_FAILED, Reason.SPLIT_KEY})


class Rejected(Exception):
    """The exception for a record that is not valid.

    It contains a reason for programs, and a sentence for display. The exception describes the
    record, and does not report an error of the program.
    """

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def kind_of(found: Any) -> str:
    """Describes a JSON value by its type. For a number or a text, also shows the value."""
    match found:
        case None:
            return "null"
        case bool():
            return "true or false"
        case str():
            return f"the text {show_value(found)}"
        case int():
            return f"the whole number {show_value(found)}"
        case list():
            return "an array"
        case dict():
            return "an object"
        case _:
            return f"the number {show_value(found)}"


def show_value(found: Any) -> str:
    """Formats a value for display, in at most 80 characters."""
    # Rejects are stored: one wild record must not fill the table, nor half a surrogate stop the
    # write.
    text = json.dumps(found, ensure_ascii=False) if isinstance(found, str) else str(found)
    text = text.encode(errors="backslashreplace").decode()
    return text if len(text) <= 80 else f"{text[:77]}..."
