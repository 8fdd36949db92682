"""Loops over all records, which Numba compiles (docs/explain/decisions/0007-compiled-loops.md): each once for a user and a machine, and kept in his cache.

`make setup` imports the modules that have such loops, so that no worker waits for the compiler. Where nothing can be kept each process compiles for itself.
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

from kappa.base.cache import user_cache

Loop = Callable[..., Any]


def compiled(signature: Any) -> Callable[[Loop], Loop]:
    """A function of numbers and arrays as machine code, for exactly these types of Numba's."""

    def compile_loop(loop: Loop) -> Loop:
        # Numba would keep it beside the module, where that can be written: another user would compile it again. It asks for no digest either.
        before, config.CACHE_DIR = config.CACHE_DIR, _folder(loop.__code__.co_filename)
        try:
            # No folder that can be written, or a full disk.
            with suppress(OSError, RuntimeError):
                return numba.njit(signature, cache=True)(loop)  # type: ignore[no-any-return]
            return numba.njit(signature)(loop)  # type: ignore[no-any-return]
        finally:
            config.CACHE_DIR = before

    return compile_loop


def _folder(source: str) -> str:
    # What has changed is never taken for what it was: Numba goes by a file's time and size, and writes its index before its code.
    digest = hashlib.sha256(
        f"{numba.__version__} {get_host_cpu_name()} ".encode() + Path(source).read_bytes()
    ).hexdigest()[:16]
    try:
        return str(user_cache("compiled") / digest)
    except RuntimeError:
        return ""
