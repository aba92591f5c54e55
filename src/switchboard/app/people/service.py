"""Persons: operators say which handles are one person, and in which groups that person is.

HTTP calls `PeopleService` with the caller's `Principal`. In: ids, names and handles; out: persons. Every change is
audited in its own transaction, and lets nobody in: who may write stays a matter of each account. Next:
`store/people/people.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from switchboard.app.access import OPERATOR, Action, Principal
from switchboard.app.cursors import CursorText, cursor_after, key_of
from switchboard.app.runtime import Runtime
from switchboard.core.calls import CALL_CHANNEL
from switchboard.core.channels.registry import Channels
from switchboard.core.people.handle import ADDRESS, Handle, handle_at
from switchboard.domain.errors import Conflict, InvalidInput, NotFound
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.people import ShownHandle, ShownPerson
from switchboard.lanes.notifier import PEOPLE as PEOPLE_TOPIC
from switchboard.lanes.notifier import RULES
from switchboard.ports.channel import MAX_SLUG, SLUG, Form
from switchboard.store.database import Database
from switchboard.store.people import audit, tokens
from switchboard.store.people import people as store
from switchboard.store.people.people import StoredHandle, StoredPerson

PEOPLE: Final = Action("people", OPERATOR)

_SLUG: Final = f"write at most {MAX_SLUG} lower-case letters, digits and single -, such as ann or ann-maria"


class PeopleService:
    """For operators only."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._database = runtime.database

    async def list_people(self, *, limit: int, cursor: str | None) -> tuple[list[ShownPerson], str | None]:
        """A page by id, and the cursor of the next. Raises InvalidInput."""
        [after] = key_of(cursor, tuple[CursorText]) or (None,)
        page = await store.list_people(self._database, after=after, limit=limit)
        following = cursor_after(page[-1].person_id) if len(page) == limit else None
        return await self._show_people(self._database, page), following

    async def get_person(self, person_id: str) -> ShownPerson:
        """Raises NotFound."""
        return await self._find_person(self._database, person_id)

    async def create(self, caller: Principal, person_id: str, name: str) -> ShownPerson:
        """A person without handles. Raises InvalidInput, Conflict."""
        _require_slug(person_id, "person_id")
        async with self._open_change(caller, "created", {"person_id": person_id}) as one:
            if not await store.create(one, person_id, name):
                raise Conflict(f"there is a person {person_id!r} already; choose another id, or rename that person")
            return await self._find_person(one, person_id)

    async def rename(self, caller: Principal, person_id: str, name: str) -> ShownPerson:
        """Only the name changes; the id never does. Raises NotFound."""
        async with self._open_change(caller, "renamed", {"person_id": person_id}) as one:
            if not await store.rename(one, person_id, name):
                raise _no_person(person_id)
            return await self._find_person(one, person_id)

    async def delete(self, caller: Principal, person_id: str) -> None:
        """Forget who has these handles, and revoke the tokens that act for the person. Raises NotFound.

        Nothing that was said is erased.
        """
        async with self._open_change(caller, "deleted", {"person_id": person_id}, owns=True) as one:
            if not await store.delete(one, person_id):
                raise _no_person(person_id)
            await tokens.revoke_of(one, person_id)

    async def link(self, caller: Principal, person_id: str, named: tuple[str, str | None, str]) -> ShownPerson:
        """Link a handle (channel, endpoint, identity); again is no error. Raises NotFound, InvalidInput, Conflict."""
        handle = self._read_handle(*named)
        async with self._open_change(caller, "linked", _detail_of(person_id, handle), owns=True) as one:
            await self._find_person(one, person_id)
            if not await store.link(one, person_id, handle, caller.name):
                await _require_own(one, person_id, handle)
            return await self._find_person(one, person_id)

    async def link_calls(self, caller: Principal, person_id: str) -> None:
        """Let calls of tools that are made for a person count as theirs. Raises NotFound."""
        handle = handle_at(CALL_CHANNEL, "", person_id)
        if await store.find_person(self._database, handle) == person_id:
            return
        async with self._open_change(caller, "linked", _detail_of(person_id, handle), owns=True) as one:
            await self._find_person(one, person_id)
            await store.link(one, person_id, handle, caller.name)

    async def unlink(self, caller: Principal, person_id: str, named: tuple[str, str | None, str]) -> ShownPerson:
        """Raises NotFound, InvalidInput."""
        handle = self._read_handle(*named)
        async with self._open_change(caller, "unlinked", _detail_of(person_id, handle), owns=True) as one:
            await self._find_person(one, person_id)
            if not await store.unlink(one, person_id, handle):
                raise NotFound(f"{_handle_text(handle)} is no handle of {person_id!r}; see `switchboard people show`")
            return await self._find_person(one, person_id)

    async def put_groups(self, caller: Principal, person_id: str, groups: Sequence[str]) -> ShownPerson:
        """The person is in these groups and no others. Raises NotFound, InvalidInput."""
        for group in groups:
            _require_slug(group, "groups")
        async with self._open_change(caller, "grouped", {"person_id": person_id, "groups": sorted(set(groups))}) as one:
            person = await self._find_person(one, person_id)
            for group in set(person.groups).difference(groups):
                await store.leave_group(one, person_id, group)
            for group in set(groups).difference(person.groups):
                await store.join_group(one, person_id, group)
            return await self._find_person(one, person_id)

    @asynccontextmanager
    async def _open_change(
        self, caller: Principal, done: str, detail: JsonMapping, *, owns: bool = False
    ) -> AsyncIterator[Database]:
        """A transaction that makes a new version, is audited, and tells every process.

        `owns`: whether it may change who owns a butler that names this person.
        """
        person_id = str(detail["person_id"])
        async with self._database.transaction() as one:
            await store.begin_change(one)
            yield one
            owners = owns and await store.tell_owners(one, person_id, caller.name, f"person {person_id} was {done}")
            await audit.append(one, caller.name, f"people:{done}", detail)
        self._runtime.notifier.notify(PEOPLE_TOPIC)
        if owners:
            self._runtime.notifier.notify(RULES)

    async def _find_person(self, database: Database, person_id: str) -> ShownPerson:
        found = await store.list_people(database, only=person_id)
        if not found:
            raise _no_person(person_id)
        [person] = await self._show_people(database, found)
        return person

    async def _show_people(self, database: Database, found: Sequence[StoredPerson]) -> list[ShownPerson]:
        handles: dict[str, list[ShownHandle]] = {one.person_id: [] for one in found}
        for one in await store.list_handles(database, list(handles)):
            handles[one.person_id].append(_show_handle(one, self._runtime.channels))
        return [ShownPerson(p.person_id, p.name, p.groups, handles[p.person_id], p.created_at) for p in found]

    def _read_handle(self, channel: str, endpoint: str | None, identity: str) -> Handle:
        """The handle as the channel counts it. Raises InvalidInput."""
        known = self._runtime.channels.known(channel, "channel")
        if known.realm == "endpoint" and endpoint is None:
            message = f"an identity of {channel!r} means somebody at one endpoint only; name it as its endpoint"
            raise InvalidInput(message, field="endpoint")
        form = known.keys.get(ADDRESS)
        if known.identity == "address" and isinstance(form, Form) and (why := form.mismatch(identity)):
            raise InvalidInput(f"nobody has the identity {identity!r}: {why}", field="identity")
        return handle_at(known, endpoint or "", identity)


async def _require_own(one: Database, person_id: str, handle: Handle) -> None:
    other = await store.find_person(one, handle)
    if other is not None and other != person_id:
        raise Conflict(
            f"{_handle_text(handle)} is a handle of {other!r}, and a handle is in one person: unlink it there first",
            code="linked_to_another",
        )


def _require_slug(word: str, field: str) -> None:
    if SLUG.fullmatch(word) is None:
        raise InvalidInput(f"{word!r} cannot be used: {_SLUG}", field=field)


def _show_handle(one: StoredHandle, channels: Channels) -> ShownHandle:
    vouched = channels[one.channel].vouched
    return ShownHandle(one.channel, one.realm or None, one.identity, vouched, one.linked_at, one.linked_by)


def _detail_of(person_id: str, handle: Handle) -> dict[str, object]:
    where = {"channel": handle.channel, "endpoint": handle.realm or None, "identity": handle.identity}
    return {"person_id": person_id, **where}


def _handle_text(handle: Handle) -> str:
    where = f"{handle.channel}/{handle.realm}" if handle.realm else handle.channel
    return f"{handle.identity!r} of {where}"


def _no_person(person_id: str) -> NotFound:
    return NotFound(f"there is no person {person_id!r}; see `switchboard people list`")
