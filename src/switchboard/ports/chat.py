"""Facts of any chat: whether the bot is addressed, which command it is given, and the kinds of media it is sent.

Called by channels, ours and third parties'. In: an envelope and what the channel found in its `payload.raw`;
out: facts for rules. Next: `core/channels/telegram.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from switchboard.domain.envelope import Envelope
from switchboard.ports.channel import SEVERAL, YES_OR_NO, Form, Found, Values

COMMAND_NAMES: Final = ("approve", "refuse", "answer", "stop", "new", "help", "start", "link", "memory")
"""The commands of Switchboard. No others are recognised by another mark than a slash."""
EXCLAMATION_MARK: Final = "!"
"""The `command_mark` of platforms whose apps take a word with a slash for a command of their own."""
_COMMAND = re.compile(r"/([\w-]{1,64})(?:@(\S+))?(?!\S)")
_OURS: Final = re.compile(rf"(?:{'|'.join(COMMAND_NAMES)})\b", re.IGNORECASE)
_KINDS: Final = {"image": "photo", "video": "video", "audio": "audio"}
"""By the first part of a content type; all others are documents."""
QUOTE_MARKS: Final = (">", "&gt;", "\uff1e")
"""How a line begins that is quoted."""
UNSEEN: Final = re.compile(
    "[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufe00-\ufe0f]"
)
"""Characters between others that nobody sees: they would hide a mark."""

KEYS: Final[dict[str, Values]] = {
    "addressed": YES_OR_NO,
    "command": Form(
        re.compile(r"/[^\sA-Z@/]+"),
        "a command in lower case with its slash and without the bot's name, such as /start",
        lambda value: f"/{value.lower().lstrip('/').partition('@')[0]}",
    ),
}
"""The keys of `chat_facts`."""


def chat_facts(envelope: Envelope, *, direct: bool, named: bool = False, mark: str = "/") -> Found:
    """`addressed`, if the chat is a `direct` one, the bot is `named` or the connector says so; and `command`.

    A command that names another bot after its `@` does not count. `mark`: the `command_mark` of the channel.
    """
    addressed = direct or named or envelope.control.addressed
    return {"addressed": "yes" if addressed else "no", "command": _command_for_bot(envelope, mark)}


def words_of_sender(envelope: Envelope) -> str:
    """What the sender of a message in a chat says, without what is quoted or forwarded in it.

    Where the connector does not mark that, lines that begin with `>` are somebody else's.
    """
    payload = envelope.payload
    if payload.passages:
        return "\n\n".join(one.text for one in payload.passages if one.kind == "own")
    text = payload.normalized_text
    if not any(mark in text for mark in QUOTE_MARKS):
        return text
    return "\n".join(line for line in text.splitlines() if not is_quoted_line(line)).strip()


def is_quoted_line(line: str) -> bool:
    """Whether a line begins with the mark of a quotation, as far as one sees."""
    shown = line if line.isascii() else UNSEEN.sub("", line)
    return shown.lstrip().startswith(QUOTE_MARKS)


def with_slash(text: str, mark: str) -> str:
    """A text whose command, if it is one of Switchboard's, begins with a slash instead of the mark of its channel."""
    is_ours = mark != "/" and text.startswith(mark) and _OURS.match(text, len(mark)) is not None
    return f"/{text[len(mark) :]}" if is_ours else text


def _command_for_bot(envelope: Envelope, mark: str) -> str | None:
    """`/start` for `/Start@house_bot now`, if this is `bot:house_bot`."""
    text = with_slash(words_of_sender(envelope), mark)
    found = _COMMAND.match(text) if text.startswith("/") else None
    if found is None or (found[2] and not is_own(envelope, found[2])):
        return None
    return f"/{found[1].lower()}"


def is_private(envelope: Envelope) -> bool:
    """Whether, according to the connector, it is a chat of two."""
    return envelope.sender.chat_type == "private"


def is_own(envelope: Envelope, name: object) -> bool:
    """Whether a name or an id is that of the receiving account, as `House` is for `bot:@house`."""
    if not isinstance(name, str) or not name.strip("@"):
        return False
    endpoint, name = envelope.source.endpoint_identity.lower(), name.lower().lstrip("@")
    return endpoint.endswith(name) and endpoint.removesuffix(name).rstrip("@")[-1:] in ("", ":")


def is_called(envelope: Envelope) -> bool:
    """Whether the sender names the account after an `@` that is not part of an address or of another name."""
    text = words_of_sender(envelope).lower()
    name = envelope.source.endpoint_identity.rpartition(":")[2].lstrip("@").lower()
    mention = rf"(?:^/[\w-]+|(?<![\w.+-]))@{re.escape(name)}(?![.-]?\w)"
    return bool(name) and f"@{name}" in text and re.search(mention, text) is not None


def media_of(kinds: Iterable[str | None]) -> str | None:
    """The fact `media`: each kind once."""
    return SEVERAL.join(sorted({kind for kind in kinds if kind})) or None


def kind_of(content_type: object) -> str | None:
    """`photo` for `image/jpeg`; None if it is no content type."""
    return _KINDS.get(content_type.partition("/")[0].lower(), "document") if isinstance(content_type, str) else None
