"""The tools that write mails: one keeps a draft, the other sends, after somebody has approved exactly that mail.

The kernel calls them with the opened module. In: arguments of a model, of which each makes a `MailWish`; out: what the
model is told. It imports no library, as the manifest imports it. Next: `writing.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from typing import Annotated, Final, Protocol

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from switchboard.domain.errors import Conflict, InvalidInput, NotFound
from switchboard.domain.json_values import JsonObject
from switchboard.modules.email.callers import EmailRefusal, as_sentence
from switchboard.ports.mail_desk import MAIL_DESK
from switchboard.ports.module import ModuleTool, typed_tool
from switchboard.ports.tools import PreparedCall, ToolOutcome, ToolScope

MOST_TEXT: Final = 16_000
"""Characters of a mail: whoever approves it reads all of it."""
People = Annotated[list[Annotated[str, Meta(max_length=254)]], "Addresses, names or contact ids", Meta(max_length=10)]
MailText = Annotated[str, "All of it, in plain text", Meta(max_length=MOST_TEXT)]
Subject = Annotated[str, Meta(max_length=200)]
Answers = Annotated[str, "Id of the mail it answers; then no `to` means its sender", Meta(max_length=1400)]
Everybody = Annotated[bool, "Answer all its recipients, if the person says so"]
Paths = Annotated[list[Annotated[str, Meta(max_length=500)]], "Files of the workspace or inbox/", Meta(max_length=20)]
From = Annotated[str, "Own address, if not the usual", Meta(max_length=254)]

_REFUSED: Final = (EmailRefusal, InvalidInput, NotFound, Conflict)


class MailWish(Struct, frozen=True, kw_only=True):
    """The arguments of a call, as the model has written them. `draft`: it is kept, and not sent."""

    to: Sequence[str] = ()
    cc: Sequence[str] = ()
    bcc: Sequence[str] = ()
    subject: str = ""
    text: str = ""
    answers: str = ""
    everybody: bool = False
    files: Sequence[str] = ()
    sender: str = ""
    draft: bool = False


class MailWriter(Protocol):
    """The opened module. Everything raises EmailRefusal, InvalidInput, NotFound, Conflict."""

    async def prepare_sending(self, call: ToolScope, wish: MailWish) -> PreparedCall:
        """What would be sent."""
        ...

    async def send(self, call: ToolScope, wish: MailWish) -> JsonObject:
        """What became of the mail."""
        ...

    async def prepare_draft(self, call: ToolScope, wish: MailWish) -> PreparedCall:
        """What would be kept."""
        ...

    async def keep_draft(self, call: ToolScope, wish: MailWish, replaces: str) -> JsonObject:
        """Where the draft is."""
        ...


class MailCall(Struct, frozen=True):
    """A call that is prepared, or carried out. `replaces`: the id of an older draft."""

    email: MailWriter
    call: ToolScope
    wish: MailWish
    replaces: str = ""


async def email_send(  # noqa: PLR0913 - one parameter per argument of the tool
    email: MailWriter,
    text: MailText,
    call: ToolScope,
    *,
    to: People = [],  # noqa: B006 - it is not changed
    cc: People = [],  # noqa: B006 - it is not changed
    bcc: People = [],  # noqa: B006 - it is not changed
    subject: Subject = "",
    answers: Answers = "",
    everybody: Everybody = False,
    files: Paths = [],  # noqa: B006 - it is not changed
    sender: From = "",
) -> MailCall:
    """Send a mail for the person, who is asked first."""
    wish = MailWish(
        to=to,
        cc=cc,
        bcc=bcc,
        subject=subject,
        text=text,
        answers=answers,
        everybody=everybody,
        files=files,
        sender=sender,
    )
    return MailCall(email, call, wish)


async def email_draft(  # noqa: PLR0913 - one parameter per argument of the tool
    email: MailWriter,
    text: MailText,
    call: ToolScope,
    *,
    to: People = [],  # noqa: B006 - it is not changed
    cc: People = [],  # noqa: B006 - it is not changed
    bcc: People = [],  # noqa: B006 - it is not changed
    subject: Subject = "",
    answers: Answers = "",
    everybody: Everybody = False,
    files: Paths = [],  # noqa: B006 - it is not changed
    sender: From = "",
    replaces: Annotated[str, "Id of an older draft", Meta(max_length=1400)] = "",
) -> MailCall:
    """Put a draft into the person's mailbox, to be sent by them."""
    wish = MailWish(
        to=to,
        cc=cc,
        bcc=bcc,
        subject=subject,
        text=text,
        answers=answers,
        everybody=everybody,
        files=files,
        sender=sender,
    )
    return MailCall(email, call, replace(wish, draft=True), replaces)


# How it is found out, and done ----------------------------------------------------------------------------------------


async def _prepare_sending(one: MailCall) -> PreparedCall:
    return await one.email.prepare_sending(one.call, one.wish)


async def _send_mail(one: MailCall) -> JsonObject:
    return await one.email.send(one.call, one.wish)


async def _prepare_draft(one: MailCall) -> PreparedCall:
    return await one.email.prepare_draft(one.call, one.wish)


async def _keep_draft(one: MailCall) -> JsonObject:
    return await one.email.keep_draft(one.call, one.wish, one.replaces)


_MailTool = Callable[..., Awaitable[MailCall]]


def _writing_tool(
    tool: _MailTool,
    prepare: Callable[[MailCall], Awaitable[PreparedCall]],
    carry_out: Callable[[MailCall], Awaitable[JsonObject]],
) -> tuple[Callable[..., Awaitable[ToolOutcome]], Callable[..., Awaitable[PreparedCall | ToolOutcome]]]:
    """What is called, and what prepares it, of a tool whose function says what its arguments mean."""

    @wraps(tool)
    async def carry_out_call(*args: object, **given: object) -> ToolOutcome:
        try:
            return ToolOutcome(msgspec.json.encode(await carry_out(await tool(*args, **given))).decode())
        except _REFUSED as refusal:
            return _refusal_of(refusal)

    @wraps(tool)
    async def prepare_call(*args: object, **given: object) -> PreparedCall | ToolOutcome:
        try:
            return await prepare(await tool(*args, **given))
        except _REFUSED as refusal:
            return _refusal_of(refusal)

    return carry_out_call, prepare_call


def _refusal_of(refusal: Exception) -> ToolOutcome:
    return ToolOutcome(as_sentence(str(refusal)), ok=False)


_SENDING: Final = _writing_tool(email_send, _prepare_sending, _send_mail)
_DRAFTING: Final = _writing_tool(email_draft, _prepare_draft, _keep_draft)

WRITING_TOOLS: Final[tuple[ModuleTool, ...]] = (
    typed_tool(_SENDING[0], prepare=_SENDING[1], needs=(MAIL_DESK,), effect="idempotent", risk="high", ordered=True),
    # Nobody but those whose mailbox it is sees a draft.
    typed_tool(_DRAFTING[0], prepare=_DRAFTING[1], core=False, effect="idempotent", ordered=True, reach="inside"),
)
