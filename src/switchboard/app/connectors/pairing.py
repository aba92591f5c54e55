"""Which senders may write to an endpoint: operators approve, deny and revoke; a code approves its sender.

HTTP calls `PairingService` with the caller's `Principal`. In: ids and identities; out: contacts. Every decision is
audited in its own transaction. Next: `store/people/strangers.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from secrets import choice
from typing import Final
from uuid import UUID

from switchboard.app.access import OPERATOR, Action, Principal
from switchboard.app.cursors import cursor_after, key_of, uuid_cursor
from switchboard.app.runtime import Runtime
from switchboard.core.people.strangers import (
    CODE_ALPHABET,
    CODE_LENGTH,
    Contact,
    Policy,
    owner_by_code_mistake,
    require_possible,
)
from switchboard.core.text.words import offer
from switchboard.domain.errors import InvalidInput, NotFound
from switchboard.domain.json_values import JsonObject
from switchboard.domain.routing import SystemId
from switchboard.domain.shown import ContactState, ShownContact
from switchboard.lanes.notifier import RULES, WORK
from switchboard.store.people import audit
from switchboard.store.people import strangers as store
from switchboard.store.people.strangers import HeldMessage, OpenCode

__all__ = ["Contact", "HeldMessage", "OpenCode", "PairingCode", "PairingService"]

PAIRING: Final = Action("pairing", OPERATOR)

CODE_VALID: Final = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class PairingCode:
    """A code whose sender is approved at the endpoint; it counts only where `strangers` is `pair`.

    `owner_of`: the butler that the sender will own, if it is sent in a private chat.
    """

    code: str
    expires_at: datetime
    channel: str
    endpoint: str
    strangers: Policy
    owner_of: SystemId | None = None


class PairingService:
    """For operators only."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._database = runtime.database

    async def contacts(
        self, state: ContactState | None, *, limit: int, cursor: str | None
    ) -> tuple[list[ShownContact], str | None]:
        """A page, newest first, and the cursor of the next. Raises InvalidInput."""
        below = key_of(cursor, tuple[datetime, UUID])
        page = await store.list_contacts(self._database, state, below, limit)
        return page, cursor_after(page[-1].first_seen_at, page[-1].contact_id) if len(page) == limit else None

    async def contact(self, contact_id: UUID) -> ShownContact:
        """One of them. Raises NotFound."""
        found = await store.get_contact(self._database, contact_id)
        if found is None:
            raise _no_contact(contact_id)
        return found

    async def held(self, contact_id: UUID, *, limit: int, cursor: str | None) -> tuple[list[HeldMessage], str | None]:
        """A page of the messages that wait for a decision about a contact, newest first. Raises NotFound."""
        await self.contact(contact_id)
        page = await store.held_messages(self._database, contact_id, uuid_cursor(cursor), limit)
        return page, str(page[-1].request_id) if len(page) == limit else None

    async def decide(self, caller: Principal, contact_id: UUID, state: ContactState, reason: str | None = None) -> int:
        """Approve, deny or revoke; returns how many messages were released or forgotten. Raises NotFound."""
        async with self._database.transaction() as one:
            decided = await store.decide(one, contact_id, state, caller.name)
            if decided is None:
                raise _no_contact(contact_id)
            detail: JsonObject = {"contact_id": str(contact_id), "state": state, "messages": decided.messages}
            detail |= {"reason": reason} if reason else {}
            if decided.changed or decided.messages:
                await audit.append(one, caller.name, "contact_decided", detail)
        if state == "approved" and decided.messages:
            self._runtime.notifier.notify(WORK)
        if state != "approved":
            self._runtime.notifier.notify(RULES)  # an owner may be one no longer
        return decided.messages

    async def allow(self, caller: Principal, contact: Contact) -> UUID:
        """Approve someone who has not written yet; returns the contact's id. Raises InvalidInput."""
        require_possible(contact, self._runtime.channels.known(contact.channel, "channel"))
        async with self._database.transaction() as one:
            contact_id, changed = await store.add(one, contact, caller.name)
            if changed:
                await audit.append(one, caller.name, "contact_allowed", {"contact_id": str(contact_id)})
        self._runtime.notifier.notify(WORK)
        return contact_id

    async def code(self, caller: Principal, channel: str, endpoint: str, owner_of: str | None = None) -> PairingCode:
        """A new code for one endpoint, of which only a keyed hash is kept. Raises InvalidInput."""
        known = self._runtime.channels.known(channel, "channel")
        if owner_of is not None and (why := owner_by_code_mistake(known)):
            raise InvalidInput(why, field="owner_of")
        butler = None if owner_of is None else self.find_butler(owner_of)
        code = "".join(choice(CODE_ALPHABET) for _ in range(CODE_LENGTH))
        async with self._database.transaction() as one:
            expires_at = await store.keep_code(one, store.NewCode(channel, endpoint, code, CODE_VALID, butler))
            detail = {"channel": channel, "endpoint": endpoint, "owner_of": butler}
            await audit.append(one, caller.name, "pairing_code_issued", detail)
        self._runtime.policies.look()
        policy = self._runtime.policies.get((channel, endpoint), "open")
        return PairingCode(code, expires_at, channel, endpoint, policy, butler)

    async def open_code(self, channel: str, endpoint: str) -> OpenCode | None:
        """The newest code of an endpoint that was not used yet, as far as anybody can tell of it."""
        return await store.find_open_code(self._database, channel, endpoint)

    def find_butler(self, name: str) -> SystemId:
        """An existing butler. Raises InvalidInput."""
        members = self._runtime.rule_book.rules.members
        butlers = [one.system_id for one in members.values() if one.number == 1 and one.active]
        if name in butlers:
            return SystemId(name)
        raise InvalidInput(f"there is no butler {name!r}{offer(name, butlers)}", field="owner_of")


def _no_contact(contact_id: UUID) -> NotFound:
    return NotFound(f"there is no contact {contact_id}; see `switchboard pairing list`")
