"""The executable `switchboard`, and `python -m switchboard`: what Ctrl-C does until a command runs.

It ends us without a word. As an exception it would be printed while modules are imported, and swallowed where pydantic
builds its validators: `up` ran on. Next: `cli/main.py`, which is imported after that.
"""

from __future__ import annotations

import signal
import sys
from importlib import import_module

import switchboard
from switchboard.distribution import damage


def main() -> None:
    """Run the command that the arguments of the process name, and exit with its code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not if it is ignored, as under nohup
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if (why := damage(getattr(switchboard, "__version__", None))) is not None:
        sys.exit(why)
    import_module("switchboard.cli.main").main()


if __name__ == "__main__":
    main()
