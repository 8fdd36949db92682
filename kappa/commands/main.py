"""The program `kappa`.

Its commands are in the modules of this package, and its exit codes are in kappa/base/errors.py.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys

_COMPLETES = sys.argv[1:2] == ["__complete"]
if not _COMPLETES:
    # A shell that completes a command line waits for an answer, and needs no command.
    from kappa.base.program import keep_private
    from kappa.commands.app import run_command


def main() -> None:
    """Runs the typed command, and exits with the command's exit code."""
    if _COMPLETES:
        from kappa.commands.complete import print_completions

        print_completions(sys.argv[2:])
        return
    # Libraries make many objects, none of which is garbage. A collection over these objects, during
    # the imports and at the end, takes longer than a small query.
    gc.set_threshold(100_000, 20, 20)
    atexit.register(gc.freeze)
    keep_private()
    # A command that is ended by either signal removes its files first, as after Ctrl-C.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    # Arguments are UTF-8 in every locale of the machine: in the C locale, Python decodes arguments
    # otherwise.
    sys.exit(
        run_command([os.fsencode(each).decode(errors="surrogateescape") for each in sys.argv[1:]])
    )


if __name__ == "__main__":
    main()
