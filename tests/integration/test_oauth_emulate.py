"""Signing in at another player of Google, `emulate` from npm: its page of consent, PKCE, and tokens that are renewed.

It lacks what ends sign-ins, scopes that are left out, rotation, and ports that are not registered beforehand.
"""

from __future__ import annotations

import html
import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import urljoin

import httpx2

from switchboard.testing.google import OWN
from switchboard.transport.oauth.providers import PROVIDERS
from switchboard.transport.oauth.sign_in import AskedAccess, sign_in_person
from switchboard.transport.oauth.token_file import OAuthClient, write_tokens
from switchboard.transport.oauth.tokens import TokenFile
from tests.integration.test_google_emulate import emulate, pytestmark
from tests.oauth import SIGN_IN, Terminal

__all__ = ["pytestmark"]


class Browsing(Terminal):
    """Ann chooses herself on the page, which is a form for each user."""

    async def _browse(self) -> None:
        async with httpx2.AsyncClient(follow_redirects=True) as http:
            shown = await http.get(self.page)
            forms = re.findall(r'<form[^>]*action="([^"]*)"(.*?)</form>', shown.text, re.DOTALL)
            action, form = next(one for one in forms if OWN in one[1])
            fields = re.findall(r'<input[^>]*name="([^"]+)"[^>]*value="([^"]*)"', form)
            given = {name: html.unescape(value) for name, value in fields}
            self.seen.append((await http.post(urljoin(str(shown.url), action), data=given)).text)


async def test_a_sign_in_at_emulate_gives_tokens_that_are_renewed(tmp_path: Path) -> None:
    with emulate() as url:
        client = OAuthClient(
            provider="google",
            client_id="anybody",
            client_secret="of-nobody",
            authorization_endpoint=f"{url}/o/oauth2/v2/auth",
            token_endpoint=f"{url}/oauth2/token",
        )
        google = PROVIDERS["google"]
        asked = AskedAccess(client, google, google.scopes_for(("calendar",), write=False), SIGN_IN, OWN)
        kept = await sign_in_person(asked, Browsing())
        write_tokens(tmp_path / "ann.token", replace(kept, expires_at=kept.consented_at))
        renewed = await TokenFile(tmp_path / "ann.token").access_token()
        assert (kept.user, renewed != kept.access_token) == (OWN, True)
        headers = {"authorization": f"Bearer {renewed}"}
        async with httpx2.AsyncClient(headers=headers) as http:
            assert (await http.get(f"{url}/calendar/v3/users/me/calendarList")).status_code == 200
