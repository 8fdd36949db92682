"""Compiles functions that loop over all records, with Numba.

Numba compiles each loop once per user and machine. A compiled loop releases Python's global
interpreter lock, so that several threads can decode in parallel.

The compiled code is stored in the user's cache. `make setup` imports the modules with compiled
loops, so that no Python worker of Spark waits for the compiler. If the cache cannot be written,
each process compiles the loops again. The reasons are in
docs/explain/decisions/0007-compiled-loops.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numba
from llvmlite.binding import get_host_cpu_name
from numba.core import config

from kappa.base.temporary_folders import user_cache

Loop = Callable[..., Any]


def compiled(signature: Any) -> Callable[[Loop], Loop]:
    """Returns a decorator that compiles a function of numbers and arrays for one type signature."""

    def compile_loop(loop: Loop) -> Loop:
        # By default Numba keeps the code beside the module, where another user may not read or
        # write, and without a digest.
        before, config.CACHE_DIR = config.CACHE_DIR, _folder(loop.__code__.co_filename)
        try:
            # These errors mean that the folder cannot be written, or that the disk is full.
            with suppress(OSError, RuntimeError):
                return numba.njit(signature, cache=True, nogil=True)(loop)  # type: ignore[no-any-return]
            return numba.njit(signature, nogil=True)(loop)  # type: ignore[no-any-return]
        finally:
            config.CACHE_DIR = before

    return compile_loop


def _folder(source: str) -> str:
    # Numba compares a file's time and size, and writes its index before its code: a digest makes
    # sure that changed code is compiled again. Numba's index knows no options.
    digest = hashlib.sha256(
        f"{numba.__version__} {get_host_cpu_name()} nogil ".encode() + Path(source).read_bytes()
    ).hexdigest()[:16]
    try:
        return str(user_cache("compiled") / digest)
    except RuntimeError:
        return ""
