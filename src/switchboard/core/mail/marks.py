"""Marks in the text of a mail for omitted parts.

Next: `core/mail/envelope.py`, `core/mail/hypertext.py`.
"""

from __future__ import annotations

from typing import Final

CUT_MARK: Final = "\n[… the rest of this mail was cut]"
"""The end of a text that was cut."""
UNREAD_MARK: Final = "[the body of this mail takes too long or too much memory to read; the original is kept]"
"""Replaces the body of a mail of which only the header fields are read."""
