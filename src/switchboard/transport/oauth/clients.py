"""The OAuth client that a person has made at a provider: a downloaded file, or an id that they type. Pure.

Wizards and `switchboard channels add` call it. In: what was given; out: an `OAuthClient`, or an error that says what is
wrong with it. No error quotes it. Next: `token_file.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import msgspec
from msgspec import Struct

from switchboard.domain.errors import ConfigurationError
from switchboard.transport.oauth.providers import OAuthProvider
from switchboard.transport.oauth.requests import check_endpoint
from switchboard.transport.oauth.token_file import OAuthClient

EVERYBODY: Final = "common"
"""The part of Microsoft's addresses that stands for all organisations and persons."""


@dataclass(frozen=True, slots=True)
class _Downloaded:
    client_id: str
    client_secret: str = field(default="", repr=False)
    auth_uri: str = ""
    token_uri: str = ""


class _ClientFile(Struct, frozen=True):
    installed: _Downloaded | None = None
    web: _Downloaded | None = None


def read_client(provider: OAuthProvider, text: str | bytes) -> OAuthClient:
    """The client in the JSON that the provider offers for download. Raises ValueError."""
    try:
        found = msgspec.json.decode(text, type=_ClientFile)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ValueError("it is no JSON of an OAuth client, as the provider offers it for download") from None
    if found.installed is None:
        wrong = "it is a client of the type Web application: " if found.web else "it has no client of a program: "
        raise ValueError(f"{wrong}make one of the type Desktop app, and download that")
    return _checked_client(
        OAuthClient(
            provider=provider.name,
            client_id=found.installed.client_id,
            client_secret=found.installed.client_secret,
            authorization_endpoint=found.installed.auth_uri or provider.authorization_endpoint,
            token_endpoint=found.installed.token_uri or provider.token_endpoint,
        )
    )


def typed_client(provider: OAuthProvider, client_id: str, secret: str, tenant: str = EVERYBODY) -> OAuthClient:
    """A client by its id. `tenant`: the organisation that alone may use it, at Microsoft. Raises ValueError."""
    ends = (
        one.replace(f"/{EVERYBODY}/", f"/{check_tenant(tenant)}/")
        for one in (provider.authorization_endpoint, provider.token_endpoint)
    )
    authorization_endpoint, token_endpoint = ends
    return _checked_client(
        OAuthClient(
            provider=provider.name,
            client_id=client_id,
            client_secret=secret,
            authorization_endpoint=authorization_endpoint,
            token_endpoint=token_endpoint,
        )
    )


def has_tenants(provider: OAuthProvider) -> bool:
    """Whether a client may be limited to one organisation."""
    return f"/{EVERYBODY}/" in provider.token_endpoint


def check_tenant(typed: str) -> str:
    """Raises ValueError unless it can be an organisation at Microsoft."""
    if not typed.isascii() or not typed.replace("-", "").replace(".", "").isalnum():
        raise ValueError("the tenant is an ID such as 72f988bf-86f1-41af-91ab-2d7cd011db47, or a domain")
    return typed


def _checked_client(client: OAuthClient) -> OAuthClient:
    if not client.client_id.isascii() or not client.client_id.isprintable() or not client.client_id:
        raise ValueError("the id of the client is not one")
    try:
        for endpoint in (client.authorization_endpoint, client.token_endpoint):
            check_endpoint(endpoint)
    except ConfigurationError as error:
        raise ValueError(error.message) from error
    return client
