"""A person links another of their accounts: a code is asked for with one, and sent from the other.

The built-in engine calls `LinkCodes` with the command `/link` (`stopping.py`). In: the turn and its whole message; out:
what the sender is told, which names nobody. Linking lets nobody in, and no code is kept but by a keyed hash. Next:
`store/people/people.py`.
"""

from __future__ import annotations

from datetime import timedelta
from secrets import choice
from typing import Final

import structlog

from switchboard.core.people.handle import Handle
from switchboard.core.people.known import proven_handle
from switchboard.core.people.strangers import CODE_ALPHABET, CODE_LENGTH
from switchboard.core.routing.facts import facts
from switchboard.domain.envelope import Envelope
from switchboard.journey.approving import Conversations
from switchboard.lanes.notifier import PEOPLE, RULES, Notifier
from switchboard.ports.engine import Turn
from switchboard.store.database import Database
from switchboard.store.people import audit
from switchboard.store.people import people as store

log = structlog.get_logger(__name__)

CODE_VALID: Final = timedelta(minutes=10)

CODE_TEXT: Final = """Within ten minutes, send this from your other account:
/link {code}
If its app keeps the slash to itself, write !link instead.
It will count as you from then on. So give the code to nobody, and never send one that somebody else gave you."""
LINKED_TEXT: Final = "Done: this account and the one that asked for the code count as one person from now on."
UNKNOWN_TEXT: Final = "Nobody has said yet whose account this is, so it gives no code. An operator can."
CLAIMED_TEXT: Final = "Here it is not certain who writes, so nothing can be linked. An operator can do that."
OVERHEARD_TEXT: Final = "Others read this. Write /link where nobody else does."
READ_TEXT: Final = "Others read this, so the code does not count any more. Ask for a new one."
WRONG_TEXT: Final = "That code does not count, or no longer. Ask for a new one from the account that is known: /link"
SAME_TEXT: Final = "This is the account that asked for the code. Ask for a new one, and send it from the other account."
TAKEN_TEXT: Final = "This account is linked already. An operator must unlink it first."


class LinkCodes:
    """Gives codes to handles of known persons, and links handles that send one."""

    def __init__(self, database: Database, notifier: Notifier, conversations: Conversations) -> None:
        self._database = database
        self._notifier = notifier
        self._conversations = conversations

    async def answer(self, turn: Turn, whole: Envelope, code: str | None) -> str:
        """What the sender of `/link` is told; `whole`: the message with its `payload.raw`. Raises Unavailable."""
        channel = self._conversations.channel_of(whole)
        handle = proven_handle(whole, channel, facts(whole, channel))
        if handle is None:
            return CLAIMED_TEXT
        if not (await self._conversations.reader(turn)).private:
            return await self._refuse_overheard(code)
        return await self._give_code(handle) if code is None else await self._use_code(turn, handle, code)

    async def _refuse_overheard(self, code: str | None) -> str:
        if code is None:
            return OVERHEARD_TEXT
        await store.lock_code(self._database, code)
        return READ_TEXT

    async def _give_code(self, handle: Handle) -> str:
        code = "".join(choice(CODE_ALPHABET) for _ in range(CODE_LENGTH))
        async with self._database.transaction() as one:
            await store.lock(one)
            if not await store.keep_code(one, store.AskedCode(handle, code, CODE_VALID)):
                return UNKNOWN_TEXT
            await audit.append(one, _name_of(handle), "people:code_issued", _detail_of(handle))
        return CODE_TEXT.format(code=f"{code[:5]}-{code[5:]}")

    async def _use_code(self, turn: Turn, handle: Handle, code: str) -> str:
        """Once also if the turn runs again: its message has used the code, and the handle is linked then."""
        async with self._database.transaction() as one:
            await store.lock(one)
            asked = await store.use_code(one, code, turn.request_id)
            if asked is None:
                log.warning("a code to link an account was wrong", channel=handle.channel, identity=handle.identity)
                return WRONG_TEXT
            if asked.handle == handle:
                return SAME_TEXT
            known = await store.find_person(one, handle)
            if known is not None:
                return LINKED_TEXT if known == asked.person_id else TAKEN_TEXT
            owners = await self._link_handle(one, asked, handle)
        self._notifier.notify(PEOPLE)
        if owners:
            self._notifier.notify(RULES)
        return LINKED_TEXT

    async def _link_handle(self, one: Database, asked: store.StoredOwner, handle: Handle) -> bool:
        """Whether that changes who owns a butler."""
        by = f"code of {_name_of(asked.handle)}"
        await store.begin_change(one)
        await store.link(one, asked.person_id, handle, by)
        detail = {"person_id": asked.person_id, **_detail_of(handle), "asked_by": _detail_of(asked.handle)}
        await audit.append(one, by, "people:linked", detail)
        return await store.tell_owners(one, asked.person_id, by, f"person {asked.person_id} was linked by a code")


def _detail_of(handle: Handle) -> dict[str, object]:
    return {"channel": handle.channel, "endpoint": handle.realm or None, "identity": handle.identity}


def _name_of(handle: Handle) -> str:
    return f"{handle.channel}:{handle.identity}"
