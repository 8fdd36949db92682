"""The interface of the librdkafka that confluent_kafka ships.

Sources: https://docs.confluent.io/platform/current/clients/librdkafka/html/rdkafka_8h.html
"""

from __future__ import annotations

import ctypes
from typing import Any

from confluent_kafka import KafkaError, KafkaException, cimpl

from kappa.kafka.answers import Options

_CONSUMER, _CONF_OK = 1, 0
_REASON_BYTES = 512
_FIRST = {"debug", "plugin.library.paths"}


def _librdkafka() -> ctypes.CDLL:
    library = ctypes.CDLL(cimpl.__file__)
    pointer, text, size, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int
    for name, answer, arguments in (
        ("conf_new", pointer, ()),
        ("conf_set", number, (pointer, text, text, text, size)),
        ("conf_destroy", None, (pointer,)),
        ("new", pointer, (number, pointer, text, size)),
        ("last_error", number, ()),
        ("poll_set_consumer", number, (pointer,)),
        ("queue_get_consumer", pointer, (pointer,)),
        ("queue_destroy", None, (pointer,)),
        ("topic_partition_list_new", pointer, (number,)),
        ("topic_partition_list_add", pointer, (pointer, text, ctypes.c_int32)),
        (
            "topic_partition_list_set_offset",
            number,
            (pointer, text, ctypes.c_int32, ctypes.c_int64),
        ),
        ("topic_partition_list_destroy", None, (pointer,)),
        ("assign", number, (pointer, pointer)),
        ("consume_batch_queue", ctypes.c_ssize_t, (pointer, number, pointer, size)),
        ("message_headers", number, (pointer, pointer)),
        ("header_get_all", number, (pointer, size, pointer, pointer, pointer)),
        ("message_errstr", text, (pointer,)),
        ("consumer_close", number, (pointer,)),
        ("destroy", None, (pointer,)),
    ):
        function = getattr(library, f"rd_kafka_{name}")
        function.restype, function.argtypes = answer, arguments
    return library


RD = _librdkafka()


def new_consumer(options: Options) -> int:
    """Returns the handle of a new consumer. Raises KafkaException for refused options."""
    reason = ctypes.create_string_buffer(_REASON_BYTES)
    conf = RD.rd_kafka_conf_new()
    # A plugin may know the options that follow.
    for name, value in sorted(options.items(), key=lambda option: option[0] not in _FIRST):
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if (
            RD.rd_kafka_conf_set(conf, name.encode(), text.encode(), reason, _REASON_BYTES)
            != _CONF_OK
        ):
            RD.rd_kafka_conf_destroy(conf)
            raise KafkaException(
                KafkaError(KafkaError._INVALID_ARG, reason.value.decode(errors="replace"))
            )
    handle: int | None = RD.rd_kafka_new(_CONSUMER, conf, reason, _REASON_BYTES)
    if handle is None:
        RD.rd_kafka_conf_destroy(conf)
        raise KafkaException(
            KafkaError(RD.rd_kafka_last_error(), reason.value.decode(errors="replace"))
        )
    return handle


def headers_of(message: int) -> list[dict[str, Any]]:
    """Returns copies of a message's headers, in the message's order."""
    headers, name, value, size = (
        ctypes.c_void_p(),
        ctypes.c_char_p(),
        ctypes.c_void_p(),
        ctypes.c_size_t(),
    )
    RD.rd_kafka_message_headers(message, ctypes.byref(headers))
    found: list[dict[str, Any]] = []
    while (
        RD.rd_kafka_header_get_all(
            headers, len(found), ctypes.byref(name), ctypes.byref(value), ctypes.byref(size)
        )
        == 0
    ):
        found.append(
            {
                "key": (name.value or b"").decode(errors="replace"),
                "value": None if value.value is None else ctypes.string_at(value.value, size.value),
            }
        )
    return found
