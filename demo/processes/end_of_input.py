"""Detects the end of standard input. A child thereby notices that its parent has exited."""

from __future__ import annotations

import os
import threading


def stop_at_end_of_input() -> threading.Event:
    """Returns an event that is set when standard input ends.

    Standard input ends when the parent process closes it or exits.
    """
    stop = threading.Event()

    def listen() -> None:
        # Not through sys.stdin: a thread that waits in it aborts the interpreter at its end.
        while os.read(0, 4096):
            pass
        stop.set()

    threading.Thread(target=listen, name="end-of-input", daemon=True).start()
    return stop
