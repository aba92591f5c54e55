"""Writes mails: finds out what a call would send, and sends exactly that once it is approved; or keeps it as a draft.

`opened.py` hands on what the tools are called with. In: a scope and a `MailWish`; out: a `PreparedCall`, or what became
of the mail. Next: `composing.py`; `drafting.py` and `ports/mail_desk.py`.
"""

from __future__ import annotations

from msgspec.structs import replace

from switchboard.domain.json_values import JsonObject
from switchboard.modules.email.callers import EmailRefusal
from switchboard.modules.email.composing import ProposedMail, WritesMails, propose_mail
from switchboard.modules.email.drafting import DraftDesk
from switchboard.modules.email.enclosing import read_files, store_files
from switchboard.modules.email.write_tools import MailWish
from switchboard.ports.mail_desk import MailDesk, MailFate
from switchboard.ports.tools import PreparedCall, ToolScope


async def prepare_sending(email: WritesMails, call: ToolScope, wish: MailWish) -> PreparedCall:
    """Changes nothing. What was queued by an earlier attempt is only told. Raises as `propose_mail`."""
    if await _desk_of(email).state(f"email:{call.key}") is not None:
        return PreparedCall("idempotent", "high", begun=True)
    return _prepared_call(await propose_mail(email, call, wish))


def _prepared_call(proposal: ProposedMail) -> PreparedCall:
    why = f"a mail to {proposal.recipients}"[:200]
    return PreparedCall("idempotent", "high", why, proposal.shown, proposal.digest)


async def send_mail(email: WritesMails, call: ToolScope, wish: MailWish) -> JsonObject:
    """Have it sent, unless it would be another mail by now. Raises as `propose_mail`, NotFound, Conflict."""
    desk = _desk_of(email)
    if (fate := await desk.state(f"email:{call.key}")) is not None:
        return _told_fate(fate)
    proposal = await propose_mail(email, call, wish)
    if objection := call.objection_to(_prepared_call(proposal)):
        raise EmailRefusal(f"nothing was sent: {objection}. Call it again, so that it is asked about as it is")
    files = await store_files(call, proposal.files)
    queued = await desk.queue(replace(proposal.mail, files=files), call)
    return _told_fate(MailFate("waiting", queued.message_id))


def _told_fate(fate: MailFate) -> JsonObject:
    told: JsonObject = {"state": fate.state, "message_id": fate.message_id}
    if fate.state == "waiting":
        told["note"] = "it is on its way; if it cannot be sent, that is told in this conversation, and so are answers"
    return told | ({"why": fate.why} if fate.why else {})


async def prepare_draft(email: WritesMails, call: ToolScope, wish: MailWish) -> PreparedCall:
    """Nobody else sees a draft, so nobody has to approve it. Raises as `propose_mail`."""
    proposal = await propose_mail(email, call, wish)
    return PreparedCall("idempotent", "low", "", proposal.shown, proposal.digest)


async def keep_draft(email: WritesMails, call: ToolScope, wish: MailWish, replaces: str) -> JsonObject:
    """Keep it in the mailbox, in place of an older one if that is named. Raises as `propose_mail`."""
    proposal = await propose_mail(email, call, wish)
    if objection := call.objection_to(PreparedCall("idempotent", "low", "", proposal.shown, proposal.digest)):
        raise EmailRefusal(f"nothing was written: {objection}. Call it again")
    files = await read_files(call, proposal.files)
    accounts = await email.held.seen_by(call)
    told = await DraftDesk(accounts, email.connections).keep(call, proposal, files, replaces)
    return {**told, "to": proposal.recipients, "subject": proposal.mail.subject}


def _desk_of(email: WritesMails) -> MailDesk:
    if email.desk is None:
        raise EmailRefusal("nothing can be sent here")
    return email.desk
