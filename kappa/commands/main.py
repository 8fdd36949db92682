"""The program `kappa`: its commands are in this package, exit codes in kappa/base/errors.py."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys

from kappa.base.program import keep_private
from kappa.commands.app import run_command


def main() -> None:
    """Runs the command that was typed, and exits with its code."""
    # Libraries make many objects, none of which is garbage: to look through them while they are
    # imported, and at the end, takes longer than to answer a small query.
    gc.set_threshold(100_000, 20, 20)
    atexit.register(gc.freeze)
    keep_private()
    # Whoever ends a command by these two, it removes its files first, as after Ctrl-C.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    # Arguments are UTF-8 whatever the machine's language is: in C, Python decodes them otherwise.
    sys.exit(
        run_command([os.fsencode(each).decode(errors="surrogateescape") for each in sys.argv[1:]])
    )
