"""Whether a mail is a message of a calendar program that nobody reads or answers (iMIP, RFC 6047).

Called by `core/mail/parse.py`. In: the tree of a mail; out: yes or no. An invitation is for a person and is none; what
attendees' programs say of one, and that it is cancelled, is for the calendar.
"""

from __future__ import annotations

import re
from typing import Final

from switchboard.core.mail.head import or_none
from switchboard.core.mail.mime import MailPart, content, leaves

CALENDAR_TYPE: Final = "text/calendar"
_METHOD: Final = re.compile(rb"^METHOD(?:;[^:\r\n]*)?:[ \t]*([A-Za-z-]+)", re.IGNORECASE | re.MULTILINE)
_FOR_PROGRAMS: Final = frozenset(("REPLY", "COUNTER", "DECLINECOUNTER", "REFRESH", "CANCEL"))


def is_for_calendars(root: MailPart) -> bool:
    """Whether all calendar objects in a mail are answers, proposals or cancellations, and there is one."""
    methods = [_method_of(part) for part in leaves(root) if part.media_type == CALENDAR_TYPE]
    return bool(methods) and all(one in _FOR_PROGRAMS for one in methods)


def _method_of(part: MailPart) -> str:
    named = or_none(lambda: part.head.get_param("method"))
    if isinstance(named, str) and named:
        return named.upper()
    found = _METHOD.search(content(part))
    return found[1].decode("ascii").upper() if found else ""
