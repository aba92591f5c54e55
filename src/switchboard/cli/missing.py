"""A required option that was not given, where the command finds that out itself. Raised by commands, for `main.py`."""

from __future__ import annotations

import typer


class MissingOption(typer.BadParameter):
    """`message` says what it is needed for, and `param_hint` is the option."""

    def format_message(self) -> str:
        """As for an option that is always required."""
        return f"Missing option '{self.param_hint}': {self.message}"
