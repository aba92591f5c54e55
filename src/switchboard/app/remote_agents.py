"""The register of remote butlers: their announcements, their addresses, and who is quarantined.

HTTP, MCP and the command line call `Registry` with the caller's `Principal`. In: heartbeats of butlers, orders of
operators; out: the butler's present state. Changes are audited, mere heartbeats are not. Next:
`store/rules/remote_agents.py`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

import httpx2
from msgspec.structs import replace

from switchboard.app.access import AGENT, OPERATOR, Access, Action, Principal
from switchboard.app.runtime import Runtime
from switchboard.core.text.outside import outside_json
from switchboard.core.text.tokens import estimate_tokens
from switchboard.domain.errors import ConfigurationError, Conflict, Forbidden, InvalidInput, NotFound, Overloaded
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.remote_agents import RemoteAgent, RemoteState
from switchboard.domain.routing import Member, SystemId
from switchboard.lanes.notifier import RULES
from switchboard.store.people import audit
from switchboard.store.rules import remote_agents as store
from switchboard.store.rules.remote_agents import (
    ANNOUNCED_EVERY_S,
    Announcement,
    Beat,
    Registered,
    TooSoon,
    endpoint_in_use,
)
from switchboard.transport.signed_post import PostError, check_url, checked_addresses

BEAT: Final = Action("beat", AGENT)
EDIT_AGENTS: Final = Action("agents_edit", OPERATOR)

ENGINE: Final = "mcp"
"""The engine of remote butlers."""
_RESOLVE_S: Final = 5.0
_MOST_TOKENS: Final = 2000
"""Maximum tokens of an announcement: it is in the prompt for every message of the butler's team."""
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Standing(RemoteState):
    """The state of a remote butler. `endpoint` omits what may be secret in a URL."""

    interval_s: int


def shown_endpoint(member: Member, remote_agent: RemoteAgent | None) -> str | None:
    """The URL in use, without user, password, query and fragment, which may be secret."""
    set_for_him, own = (None, False) if remote_agent is None else (remote_agent.endpoint, remote_agent.own_endpoint)
    url = endpoint_in_use(member.options, set_for_him, own=own) if member.engine == ENGINE else None
    return None if url is None else _without_secrets(url)


def _without_secrets(url: str) -> str | None:
    """None: it is not a URL."""
    try:
        return str(httpx2.URL(url).copy_with(userinfo=b"", query=None, fragment=None))
    except (httpx2.InvalidURL, UnicodeError):
        return None


class RemoteAgentService:
    """Serves butlers and operators; a butler's token reaches that butler alone."""

    def __init__(self, runtime: Runtime, access: Access) -> None:
        self._runtime = runtime
        self._database = runtime.database
        self._access = access
        self._patience = runtime.settings.liveness

    def is_remote(self, caller: Principal) -> bool:
        """Whether the caller may send heartbeats of a butler: the butler itself, or an operator on its behalf."""
        return caller.role == "operator" or caller.system_id in self._runtime.rule_book.remote_agents

    async def beat(self, caller: Principal, system_id: str | None, said: Announcement) -> Standing:
        """A heartbeat, with an announcement. Raises Forbidden, NotFound, InvalidInput, Overloaded."""
        named = system_id or caller.system_id
        if named is None:
            raise InvalidInput(
                "an operator must give the system_id of the butler", code="missing_field", field="system_id"
            )
        await self._access.check_system(caller, BEAT, named)
        _check_length(said)
        known = await self._find_remote(caller, BEAT, named)
        said = await self._with_checked_endpoint(caller, known, said)
        kept = await store.beat(self._database, known.member.system_id, said, self._patience)
        if kept is None:
            raise NotFound(f"there is no butler {named}")
        if isinstance(kept, TooSoon):
            raise Overloaded(
                f"{named} announced a change just now: one every {ANNOUNCED_EVERY_S:.0f} s is accepted; "
                "heartbeats without changes always are",
                retry_after=kept.wait,
            )
        await self._put_on_record(caller, *kept)
        return await self._standing_of(known.member.system_id)

    async def _find_remote(self, caller: Principal, action: Action, system_id: str) -> Registered:
        known = await store.get(self._database, SystemId(system_id))
        if known is not None and known.member.engine == ENGINE and known.member.active:
            return known
        why = f"{system_id} is not a remote butler, which is an active member with the engine {ENGINE!r}"
        if caller.role != "operator":
            await self._access.record_refusal(caller, action, {"system_id": system_id})
            raise Forbidden(why)
        if known is None:
            raise NotFound(f"there is no butler {system_id}")
        raise Conflict(why)

    async def _with_checked_endpoint(self, caller: Principal, known: Registered, said: Announcement) -> Announcement:
        """A butler may move only if its file allows that: its token alone must not suffice to divert messages.

        The endpoint is omitted if there is nothing to do: it is already in use, or an operator has set another one.
        """
        member, endpoint = known.member, said.endpoint
        by_operator = known.endpoint is not None and not known.own_endpoint
        if endpoint is None or endpoint == known.in_use or by_operator:
            return replace(said, endpoint=None)
        if member.options.get("announces_endpoint") is not True:
            await self._access.record_refusal(
                caller, BEAT, {"system_id": member.system_id, "endpoint": _host_of(endpoint)}
            )
            raise Forbidden(
                f"{member.system_id} may not announce its endpoint: an operator may change its endpoint, or "
                "its team file "
                "may say announces_endpoint: true",
                field="endpoint",
            )
        await self._check_endpoint(member, endpoint)
        return said

    async def _check_endpoint(self, member: Member, endpoint: str) -> None:
        try:
            check_url(endpoint)
        except ConfigurationError as error:
            raise InvalidInput(error.message, code="invalid_value", field="endpoint") from None
        url = httpx2.URL(endpoint)
        if url.userinfo or url.fragment:
            raise InvalidInput(
                "the endpoint must not contain a password or a #", code="invalid_value", field="endpoint"
            )
        allowed = member.options.get("allow_private") is True
        try:
            async with asyncio.timeout(_RESOLVE_S):
                await checked_addresses(url.host, url.port or _PORTS[url.scheme], allow_private=allowed)
        except PostError as error:
            # A name that cannot be resolved now may be later; the address is checked again at each call.
            if error.kind == "forbidden":
                raise InvalidInput(str(error), code="private_endpoint", field="endpoint") from None
        except TimeoutError:
            pass

    async def _put_on_record(self, caller: Principal, earlier: Beat, now: Beat) -> None:
        before, after = earlier.registered, now.registered
        system_id = after.member.system_id
        told = {"description", "capabilities"}
        changed = {name for name in told if after.announced.get(name) != before.announced.get(name)}
        if before.in_use != after.in_use:
            detail = {"system_id": system_id, "from": _host_of(before.in_use), "to": _host_of(after.in_use)}
            await audit.append(self._database, caller.name, "agent:endpoint", detail)
        if changed:
            said: JsonMapping = {name: after.announced[name] for name in sorted(changed)}
            await audit.append(self._database, caller.name, "agent:announced", {"system_id": system_id, **said})
        if before.public != after.public or earlier.liveness != now.liveness:
            self._runtime.notifier.notify(RULES)

    async def quarantine(self, caller: Principal, system_id: str, reason: str) -> Standing:
        """Give it no work, despite heartbeats, until `release`. Raises NotFound, Conflict."""
        return await self._record_order(caller, "quarantined", system_id, reason)

    async def release(self, caller: Principal, system_id: str, reason: str) -> Standing:
        """Let it work again; silence counts as before. Raises NotFound, Conflict."""
        return await self._record_order(caller, "released", system_id, reason)

    async def _record_order(self, caller: Principal, done: str, system_id: str, reason: str) -> Standing:
        known = await self._find_remote(caller, EDIT_AGENTS, system_id)
        barred = (caller.name, reason) if done == "quarantined" else (None, None)
        detail = {"system_id": system_id, "reason": reason}
        async with self._database.transaction() as one:
            if await store.quarantine(one, known.member.system_id, *barred):
                await audit.append(one, caller.name, f"agent:{done}", detail)
        self._runtime.notifier.notify(RULES)
        return await self._standing_of(known.member.system_id)

    async def move(self, caller: Principal, system_id: str, endpoint: str | None, reason: str) -> Standing:
        """Call it there from now on; None: where its file says. Raises NotFound, Conflict, InvalidInput."""
        known = await self._find_remote(caller, EDIT_AGENTS, system_id)
        if endpoint is not None:
            await self._check_endpoint(known.member, endpoint)
        detail = {"system_id": system_id, "from": _host_of(known.in_use), "to": _host_of(endpoint), "reason": reason}
        async with self._database.transaction() as one:
            await store.move(one, known.member.system_id, endpoint)
            await audit.append(one, caller.name, "agent:endpoint", detail)
        self._runtime.notifier.notify(RULES)
        return await self._standing_of(known.member.system_id)

    async def remote_agents(self) -> dict[SystemId, RemoteAgent]:
        """The current state of every remote butler."""
        return {one.system_id: one for one in await store.list_remote_agents(self._database, self._patience)}

    async def _standing_of(self, system_id: SystemId) -> Standing:
        known, remote_agent = await store.get(self._database, system_id), (await self.remote_agents()).get(system_id)
        if known is None or remote_agent is None:
            raise NotFound(f"there is no butler {system_id}")
        endpoint = shown_endpoint(known.member, remote_agent)
        p = remote_agent
        return Standing(p.system_id, p.liveness, p.why, p.last_seen_at, endpoint, self._patience.interval)


def _check_length(said: Announcement) -> None:
    told = outside_json({"description": said.description, "capabilities": said.capabilities})
    tokens = estimate_tokens(told)
    if tokens > _MOST_TOKENS:
        raise InvalidInput(
            f"description and capabilities take {tokens} tokens in every question to a model; the limit "
            f"is {_MOST_TOKENS}",
            code="invalid_value",
            field="description",
        )


def _host_of(url: str | None) -> str | None:
    """The part of a URL kept in the audit trail."""
    return None if url is None else _without_secrets(url) or "invalid"
