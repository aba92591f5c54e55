"""What an operator does so that a handle counts as a person: the command, and who may do what. Pure.

A handle decides what somebody may see and do, so neither a model nor an owner links one: only operators do, and whoever
sends a code. The tool prepares the command and changes nothing. Next: `docs/people.md`.
"""

from __future__ import annotations

import re
import shlex
from typing import Final

from switchboard.core.text.visible import visible

_SLUG: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


def link_request(person: str, channel: str, handle: str, endpoint: str = "") -> str:
    """What is told to whoever has asked. Raises ValueError for what cannot be linked."""
    if not _SLUG.fullmatch(person) or len(person) > 40:
        raise ValueError(
            "the person is given by their id, such as ann; operators see it with `switchboard people list`"
        )
    if not _SLUG.fullmatch(channel):
        raise ValueError("the channel is a name such as telegram or email")
    if not handle or any(visible(text) != text or not text.isprintable() for text in (handle, endpoint)):
        raise ValueError("the handle is what the channel calls somebody, in visible characters on one line")
    words = ["switchboard", "people", "link", person, channel, handle, *(("--endpoint", endpoint) if endpoint else ())]
    return (
        "Nothing is linked yet: only an operator does that, who should make sure first that this handle is that "
        f"person's. The command is: {shlex.join(words)}\n"
        "Without an operator, the person can send /link from a handle that is linked already, and then the code from "
        "this one."
    )
