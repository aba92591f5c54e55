"""People at terminals and browsers who sign in at the strict OAuth server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import httpx2

from switchboard.testing.oauth import CLIENT_ID, CLIENT_SECRET, OAuthServer
from switchboard.transport.oauth.providers import PROVIDERS
from switchboard.transport.oauth.sign_in import AskedAccess, sign_in_person
from switchboard.transport.oauth.token_file import KeptTokens, OAuthClient

SIGN_IN: Final = "switchboard modules login google --again google-ann.token"


def client_of(server: OAuthServer, provider: str = "google", secret: str = CLIENT_SECRET) -> OAuthClient:
    return OAuthClient(
        provider=provider,
        client_id=CLIENT_ID,
        client_secret=secret,
        authorization_endpoint=f"{server.url}/authorize",
        token_endpoint=f"{server.url}/token",
    )


async def final_address(page: str) -> str:
    """Where the page of consent leads, which is not opened."""
    async with httpx2.AsyncClient() as http:
        answer = await http.get(page)
    return answer.headers.get("location", "") or answer.text


@dataclass
class Terminal:
    """A `ConsentDesk`. `browses`: there is a browser here. Else `pastes` are entered, made from the final address."""

    browses: bool = True
    pastes: Sequence[Callable[[str], str]] = ()
    said: list[str] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    page: str = ""

    def say(self, text: str) -> None:
        self.said.append(text)

    def open_page(self, address: str) -> None:
        self.page = address
        if self.browses:
            self._browsing = asyncio.create_task(self._browse())

    async def _browse(self) -> None:
        async with httpx2.AsyncClient(follow_redirects=True) as http:
            self.seen.append((await http.get(self.page)).text)

    async def pasted_line(self) -> str:
        if not self.pastes:
            await asyncio.Event().wait()
        first, *self.pastes = self.pastes
        return first(await final_address(self.page))


async def signed_in(
    server: OAuthServer,
    terminal: Terminal | None = None,
    *,
    provider: str = "google",
    secret: str = CLIENT_SECRET,
    user: str = "ann@example.org",
) -> KeptTokens:
    """Ann signs in for her calendar, by the clock of the server."""
    known = PROVIDERS[provider]
    opened = known.scopes_for(("mail",) if provider == "microsoft" else ("calendar", "mail"), write=False)
    asked = AskedAccess(client_of(server, provider, secret), known, opened, SIGN_IN, user)
    return await sign_in_person(asked, terminal or Terminal(), lambda: now_of(server))


def now_of(server: OAuthServer) -> datetime:
    return datetime.fromtimestamp(server.clock(), UTC)
