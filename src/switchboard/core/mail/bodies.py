"""A text of a mail, in the forms in which it came.

Made by `core/mail/mime.py`. Next: `core/mail/passages.py`, which says whose words it has.
"""

from __future__ import annotations

from msgspec import Struct


class Body(Struct, frozen=True):
    """A text, plain, as HTML, or in both forms, of which a person reads one."""

    plain: str = ""
    html: str = ""
