"""`mrc` and `python -m mrc`: the command, which Ctrl-C ends in one line from its first import to its last moment."""

from __future__ import annotations

import signal
import sys

from ipc.errors import INTERRUPTED, INTERRUPTION


def main() -> None:
    """Entry point of the console script: import the command, which takes most of a second, and run it."""
    try:
        from mrc.cli.app import main as command

        command()
    except KeyboardInterrupt:  # while it was imported, or told how it ended
        print(INTERRUPTION, file=sys.stderr)
        sys.exit(INTERRUPTED)
    finally:
        # Python's own end would answer Ctrl-C with a traceback. One that is ignored, as after `&`, stays so.
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    main()
