"""`python -m switchboard`: the same as the executable `switchboard`. Next: `cli/main.py`."""

from __future__ import annotations

from switchboard.cli.main import main

if __name__ == "__main__":
    main()
