"""The question by which OAuth client a sign-in is asked for, which is always one that the person has made.

Wizards of modules and `switchboard channels add` ask it. In: a terminal; out: an `OAuthClient`. Next: `clients.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from switchboard.ports.login_desk import TypedPassword
from switchboard.transport.oauth.clients import EVERYBODY, check_tenant, has_tenants, read_client, typed_client
from switchboard.transport.oauth.providers import OAuthProvider
from switchboard.transport.oauth.token_file import OAuthClient

CLIENT_QUESTIONS: Final = frozenset(("client", "tenant"))


class ClientQuestions(Protocol):
    """The part of a `LoginDesk` that asks."""

    def answer_to(self, name: str, question: str, default: str | None, check: Callable[[str], str]) -> str: ...

    def password(self, question: str, *, optional: bool = False) -> TypedPassword: ...


def ask_client(desk: ClientQuestions, provider: OAuthProvider) -> OAuthClient:
    """From its downloaded file; or by its id, its secret if it has one, and the organisation that alone may use it.

    Raises InvalidInput.
    """

    def check(typed: str) -> str:
        _client_in(provider, typed) or typed_client(provider, typed, "")
        return typed

    question = "Your OAuth client: its downloaded file (JSON), or its client ID"
    given = desk.answer_to("client", question, None, check)
    if client := _client_in(provider, given):
        return client
    secret = desk.password("The secret of the client; Enter: it has none", optional=True).value
    if not has_tenants(provider):
        return typed_client(provider, given, secret)
    asked = "The tenant ID, if only one organisation may use the client"
    return typed_client(provider, given, secret, desk.answer_to("tenant", asked, EVERYBODY, check_tenant))


def _client_in(provider: OAuthProvider, typed: str) -> OAuthClient | None:
    """None: what was typed is no file. Raises ValueError for a file that cannot be used."""
    file = Path(typed.strip("'\"")).expanduser()
    if file.suffix != ".json" and os.sep not in typed and not file.is_file():
        return None
    try:
        return read_client(provider, file.read_bytes())
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror}") from error
