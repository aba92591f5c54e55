"""What people are told of mails that butlers wrote: that one was answered, or that it was not sent. Pure.

`app/answered_mails.py` and `app/dead_letters/replies.py` call it. In: the mail, and what has happened; out: texts for
the conversation in which the mail was asked for. Next: `ports/front_door.py`.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from switchboard.core.files.reply_files import reply_name, size_text
from switchboard.core.mail.headers import address
from switchboard.core.mail.writing import message_ids_in
from switchboard.core.mail.written import WrittenMail
from switchboard.core.passages.folding import answers_something, folded
from switchboard.core.passages.own import passages_of
from switchboard.core.passages.showing import marked_text
from switchboard.core.text.visible import visible, visible_start
from switchboard.domain.envelope import Envelope

ANSWERED_MAIL: Final = "answered mail"
"""The engine that tells of an answer; no butler has it."""
MOST_TOLD: Final = 12_000
"""Characters of an answer."""
_SHOWN: Final = 200


def answer_told(answer: Envelope, written: WrittenMail, automatic: str | None) -> str:
    """An answer, and what to do to answer it in turn. All of it but the names of fields was written by others."""
    files = ", ".join(f"{reply_name(one.filename)} ({size_text(one.size_bytes)})" for one in answer.payload.attachments)
    name, named = answer.sender.display_name or "", answer.event.external_event_id
    sender = address(answer.sender.identity) or answer.sender.identity
    fields = {
        "From": visible_start(f"{name} <{sender}>" if name else sender, _SHOWN),
        "Answers": f"your mail {_mail_named(written)}",
        "Automatic": "a program has sent it" if automatic else "",
        "Files": visible_start(files, _SHOWN),
        "To answer it": f"email_send with answers={named}" if message_ids_in(named) == [named] else "",
    }
    shown = folded(passages_of(answer), answers_something(passages_of(answer)))
    text = visible(marked_text([one for one in shown if not one.folded]))
    cut = "\n[…]" if len(text) > MOST_TOLD else ""
    return "\n".join((*(f"{key}: {value}" for key, value in fields.items() if value), "", text[:MOST_TOLD] + cut))


def failure_told(written: WrittenMail, outbox_id: UUID, error: str, *, uncertain: bool) -> str:
    """A mail that was not sent, or perhaps was."""
    why = visible_start(" ".join(error.split()), _SHOWN)
    what = "may have been sent, and nobody knows" if uncertain else "was not sent, or was returned"
    resend = f"An operator can send it again: switchboard outbox resend {outbox_id}"
    return f"The mail {_mail_named(written)} {what}{f': {why}' if why else ''}. {resend}"


def _mail_named(written: WrittenMail) -> str:
    return f"“{visible_start(written.subject, _SHOWN)}” to {visible_start(', '.join(written.to), _SHOWN)}"
