"""The register of remote butlers: what they say of themselves, where they are, and who is kept from work.

HTTP, MCP and the command line call `Registry` with the caller's `Principal`. In: heartbeats of butlers, orders of
operators; out: how it is with a butler now. What changes is audited, a mere heartbeat is not. Next:
`store/presence.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

import httpx2

from switchboard.agents.signed_post import PostError, check_url, checked_addresses
from switchboard.app.access import Access, Action, Principal
from switchboard.app.wiring import Core
from switchboard.core.pipeline.outside import outside_json
from switchboard.core.pipeline.tokens import estimate_tokens
from switchboard.domain.errors import ConfigurationError, Conflict, Forbidden, InvalidInput, NotFound, Overloaded
from switchboard.domain.remote import Liveness, Presence
from switchboard.domain.routing import Member, SystemId
from switchboard.lanes.bell import RULES
from switchboard.store import audit
from switchboard.store import presence as store
from switchboard.store.presence import ANNOUNCED_EVERY_S, Announcement, Beat, Registered, TooSoon, endpoint_in_use

ENGINE: Final = "mcp"
"""The engine of remote butlers."""
_RESOLVE_S: Final = 5.0
_MOST_TOKENS: Final = 2000
"""Of what a butler says of himself: it stands in the question about every message of his team."""
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Standing:
    """How it is with a remote butler. `endpoint` is without what may be secret in a URL."""

    system_id: str
    liveness: Liveness
    why: str
    last_seen_at: datetime | None
    endpoint: str | None
    interval_s: int


def shown_endpoint(member: Member, presence: Presence | None) -> str | None:
    """The URL that is called, without user, password, query and fragment: they may be secret."""
    set_for_him, own = (None, False) if presence is None else (presence.endpoint, presence.own_endpoint)
    url = endpoint_in_use(member.options, set_for_him, own=own) if member.engine == ENGINE else None
    try:
        return None if url is None else str(httpx2.URL(url).copy_with(userinfo=b"", query=None, fragment=None))
    except (httpx2.InvalidURL, UnicodeError):
        return None


class Registry:
    """Serves butlers and operators; a butler's token reaches that butler alone."""

    def __init__(self, core: Core, access: Access) -> None:
        self._core = core
        self._database = core.database
        self._access = access
        self._patience = core.settings.liveness.patience

    def is_remote(self, caller: Principal) -> bool:
        """Whether the caller may say that a butler lives: a remote butler himself, or an operator in his name."""
        return caller.role == "operator" or caller.system_id in self._core.rule_book.presences

    async def beat(self, caller: Principal, system_id: str | None, said: Announcement) -> Standing:
        """He lives, and this is what he says of himself. Raises Forbidden, NotFound, InvalidInput, Overloaded."""
        named = system_id or caller.system_id
        if named is None:
            raise InvalidInput("an operator must say whose heartbeat this is", code="missing_field", field="system_id")
        await self._access.check_system(caller, "beat", named)
        _check_length(said)
        known = await self._remote(caller, "beat", named)
        said = await self._with_checked_endpoint(caller, known, said)
        kept = await store.beat(self._database, known.member.system_id, said, self._patience)
        if kept is None:
            raise NotFound(f"there is no butler {named}")
        if isinstance(kept, TooSoon):
            raise Overloaded(
                f"{named} announced something else just now: once in {ANNOUNCED_EVERY_S:.0f} s is taken; "
                "a heartbeat that announces nothing new always is",
                retry_after=kept.wait,
            )
        await self._put_on_record(caller, *kept)
        return await self._standing(known.member.system_id)

    async def _remote(self, caller: Principal, action: Action, system_id: str) -> Registered:
        known = await store.get(self._database, SystemId(system_id))
        if known is not None and known.member.engine == ENGINE and known.member.active:
            return known
        why = f"{system_id} is no remote butler: that is an active member with the engine {ENGINE!r}"
        if caller.role != "operator":
            await self._access.refused(caller, action, {"system_id": system_id})
            raise Forbidden(why)
        if known is None:
            raise NotFound(f"there is no butler {system_id}")
        raise Conflict(why)

    async def _with_checked_endpoint(self, caller: Principal, known: Registered, said: Announcement) -> Announcement:
        """A butler may move only if his file lets him: his token alone must not be enough to lead messages away.

        The endpoint is left out where nothing is to be done: it is in use already, or an operator has set another one.
        """
        member, endpoint = known.member, said.endpoint
        by_operator = known.endpoint is not None and not known.own_endpoint
        if endpoint is None or endpoint == known.in_use or by_operator:
            return replace(said, endpoint=None)
        if member.options.get("announces_endpoint") is not True:
            await self._access.refused(caller, "beat", {"system_id": member.system_id, "endpoint": _host(endpoint)})
            raise Forbidden(
                f"{member.system_id} may not say where it is: an operator may change its endpoint, or its team file "
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
            raise InvalidInput("the endpoint holds no password and no #", code="invalid_value", field="endpoint")
        allowed = member.options.get("allow_private") is True
        try:
            async with asyncio.timeout(_RESOLVE_S):
                await checked_addresses(url.host, url.port or _PORTS[url.scheme], allow_private=allowed)
        except PostError as error:
            # Who cannot be found now may be found later; where he is then is looked at when he is called.
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
            detail = {"system_id": system_id, "from": _host(before.in_use), "to": _host(after.in_use)}
            await audit.append(self._database, caller.name, "agent:endpoint", detail)
        if changed:
            said: Mapping[str, Any] = {name: after.announced[name] for name in sorted(changed)}
            await audit.append(self._database, caller.name, "agent:announced", {"system_id": system_id, **said})
        if before.public != after.public or earlier.liveness != now.liveness:
            self._core.bell.ring(RULES)

    async def quarantine(self, caller: Principal, system_id: str, reason: str) -> Standing:
        """Keep him from work, whatever he says, until `release`. Raises NotFound, Conflict."""
        return await self._order(caller, "quarantined", system_id, reason)

    async def release(self, caller: Principal, system_id: str, reason: str) -> Standing:
        """Let him work again; if he is silent, silence counts as before. Raises NotFound, Conflict."""
        return await self._order(caller, "released", system_id, reason)

    async def _order(self, caller: Principal, done: str, system_id: str, reason: str) -> Standing:
        known = await self._remote(caller, "agents_edit", system_id)
        barred = (caller.name, reason) if done == "quarantined" else (None, None)
        await store.quarantine(self._database, known.member.system_id, *barred)
        detail = {"system_id": system_id, "reason": reason}
        await audit.append(self._database, caller.name, f"agent:{done}", detail)
        self._core.bell.ring(RULES)
        return await self._standing(known.member.system_id)

    async def move(self, caller: Principal, system_id: str, endpoint: str | None, reason: str) -> Standing:
        """Call him there from now on; None: where his file says. Raises NotFound, Conflict, InvalidInput."""
        known = await self._remote(caller, "agents_edit", system_id)
        if endpoint is not None:
            await self._check_endpoint(known.member, endpoint)
        await store.move(self._database, known.member.system_id, endpoint)
        detail = {"system_id": system_id, "from": _host(known.in_use), "to": _host(endpoint), "reason": reason}
        await audit.append(self._database, caller.name, "agent:endpoint", detail)
        self._core.bell.ring(RULES)
        return await self._standing(known.member.system_id)

    async def presences(self) -> dict[SystemId, Presence]:
        """Every remote butler as he is now."""
        return {one.system_id: one for one in await store.list_presences(self._database, self._patience)}

    async def _standing(self, system_id: SystemId) -> Standing:
        known, presence = await store.get(self._database, system_id), (await self.presences()).get(system_id)
        if known is None or presence is None:
            raise NotFound(f"there is no butler {system_id}")
        endpoint = shown_endpoint(known.member, presence)
        p = presence
        return Standing(system_id, p.liveness, p.why, p.last_seen_at, endpoint, self._patience.interval)


def _check_length(said: Announcement) -> None:
    told = outside_json({"description": said.description, "capabilities": said.capabilities})
    tokens = estimate_tokens(told)
    if tokens > _MOST_TOKENS:
        raise InvalidInput(
            f"description and capabilities are {tokens} tokens in every question to a model; {_MOST_TOKENS} may be",
            code="invalid_value",
            field="description",
        )


def _host(url: str | None) -> str | None:
    """What the audit trail keeps of a URL."""
    try:
        return None if url is None else str(httpx2.URL(url).copy_with(userinfo=b"", query=None, fragment=None))
    except (httpx2.InvalidURL, UnicodeError):
        return "not understood"
