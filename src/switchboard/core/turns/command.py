"""Where a command, an answer or a pairing code may stand in a message: nobody else's words are taken for one. Pure.

Called by `asking.py`, `house.py` and `journey/strangers.py` as a message is accepted, and by `journey/stopping.py` in
its turn. In: an envelope with its `payload.raw`, because only that tells what of a mail is its subject. Out: the
sender's own words that may be a command or an answer. Next: `asking.py`.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec.structs import replace

from switchboard.core.mail.head import decode_field
from switchboard.core.mail.headers import header
from switchboard.core.passages.own import JOINT, own_text, passages_of
from switchboard.domain.envelope import Envelope, Passage
from switchboard.ports.chat import COMMAND_NAMES, with_slash

_MAIL: Final = "email"
_NAMES: Final = tuple(f"/{name}" for name in COMMAND_NAMES)
_COMMANDS = re.compile(rf"^[^\S\n]*(?:{'|'.join(_NAMES)})\b", re.IGNORECASE | re.MULTILINE)
_IN_TEXT = re.compile(rf"(?<![\w/])/(?=(?:{'|'.join(COMMAND_NAMES)})\b)")
_WITH_WORDS = re.compile(r"/(?:answer|refuse)(?:@\S+)?[^\S\n]+\S+[^\S\n]+\S", re.IGNORECASE)
"""The beginning of a command that goes on with what a person says, which may be several lines."""
_BLANK = re.compile(r"\n\s*\n")
_SIGNATURE: Final = "--"
_SIGNATURE_LINES: Final = 3
"""Maximum lines of a signature without a line of dashes above, such as "Sent from my iPhone"."""
_MAX_SUBJECT: Final = 12_000


def has_command(envelope: Envelope, mark: str = "/") -> bool:
    """Whether a line where a command may stand begins like one; cheap, for all the messages where none does.

    `mark`: the `command_mark` of the channel.
    """
    text = envelope.payload.normalized_text
    if mark != "/" and mark in text:
        text = "\n".join(with_slash(line.lstrip(), mark) for line in text.splitlines())
    if "/" not in text:
        return False
    if envelope.source.channel != _MAIL and not envelope.payload.passages:
        return text.lstrip().startswith("/")
    lowered = text.lower()
    return any(name in lowered for name in _NAMES) and _COMMANDS.search(text) is not None


def command_text(envelope: Envelope, mark: str = "/") -> str:
    """The words that are a command or a code, if they are one; empty if nothing here can be.

    In mail: the line that the sender wrote first, without the subject. Only a signature and others' words may follow;
    an answer or the reason for a refusal may go on. Elsewhere: all the sender's words, if they stand in one piece, with
    a slash where the channel has another `mark`.
    """
    found = _command_in_mail(envelope) if envelope.source.channel == _MAIL else _command_in_chat(envelope)
    return with_slash(found, mark)


def with_mark(text: str, mark: str) -> str:
    """A text of ours in which commands are written as on a channel with this mark."""
    return text if mark == "/" else _IN_TEXT.sub(lambda _: mark, text)


def answer_text(envelope: Envelope) -> str:
    """What the sender says, as an answer to a question: in mail without the subject, and what is below `-- `."""
    if envelope.source.channel != _MAIL:
        return own_text(passages_of(envelope)).strip()
    return _without_signature(own_text(_below_subject(envelope)))


def _command_in_chat(envelope: Envelope) -> str:
    """Platforms mark what others said; where nobody has, what follows a line with `>` may belong to it."""
    passages = passages_of(envelope)
    own = [one.text for one in passages if one.kind in ("own", "between")]
    first = next((one for one in passages if not envelope.payload.passages or one.kind != "quoted"), None)
    return own[0].strip() if len(own) == 1 and first is not None and first.kind == "own" else ""


def _command_in_mail(envelope: Envelope) -> str:
    passages = _below_subject(envelope)
    if not passages or passages[0].kind != "own":
        return ""
    said = own_text(passages)
    line, _, others = said.partition("\n")
    if _COMMANDS.search(others):
        return ""
    paragraph, *below = _BLANK.split(_without_signature(said), maxsplit=1)
    signature = below[0] if below else ""
    if sum(map(bool, map(str.strip, signature.split("\n")))) > _SIGNATURE_LINES:
        return ""
    if _WITH_WORDS.match(line.strip()):
        return JOINT.join((paragraph, *below))  # nothing that may be meant is left out of what a person says
    return paragraph if "\n" not in paragraph else ""


def _below_subject(envelope: Envelope) -> tuple[Passage, ...]:
    """The passages of a mail without its subject, above which nothing stands. A subject like a command spoils all."""
    passages = passages_of(envelope)
    subject = decode_field(header(envelope.payload.raw, "subject")[:_MAX_SUBJECT])
    if not passages or not subject.strip():
        return passages
    if _COMMANDS.search(subject):
        return ()
    first, *others = passages
    found = re.match(r"\s+".join(map(re.escape, subject.split())) + r"(?!\S)", first.text)
    rest = first.text[found.end() :].strip() if found else first.text
    return (*((replace(first, text=rest),) if rest else ()), *others)


def _without_signature(text: str) -> str:
    lines = text.split("\n")
    end = next((n for n, line in enumerate(lines) if line.rstrip() == _SIGNATURE), len(lines))
    return "\n".join(lines[:end]).strip()
