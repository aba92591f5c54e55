"""Providers whose accounts are opened by OAuth 2, as data: where they are asked, and for what. Pure.

The client, by which a provider knows who asks, is always the user's own. Its downloaded file may name other addresses,
such as those of a national cloud. Next: `consent.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct

Opens = Literal["calendar", "contacts", "mail"]
"""What of an account is opened."""


class OAuthProvider(Struct, frozen=True):
    """`scopes` open something to read it, `writing` also to change it; what is in neither cannot be opened.

    `asks`: parameters of the page at which people consent. `redirect_host`: the name of this machine in the address to
    which that page leads. `one_week`: a client may be in a trial in which consent ends after seven days.
    `opens_own`: whoever signs in has the address of the account; elsewhere it may be an alias, or a shared mailbox.
    `client_files`: clients can be downloaded there as files.
    """

    name: str
    title: str
    authorization_endpoint: str
    token_endpoint: str
    scopes: Mapping[Opens, tuple[str, ...]]
    writing: Mapping[Opens, tuple[str, ...]]
    base_scopes: tuple[str, ...]
    """For who has consented, and for tokens that last."""
    asks: Mapping[str, str]
    redirect_host: str
    one_week: bool = False
    opens_own: bool = False
    client_files: bool = False

    def scopes_for(self, opened: tuple[Opens, ...], *, write: bool) -> tuple[str, ...]:
        """The smallest set of scopes. Raises KeyError for what cannot be opened."""
        found = [scope for one in opened for scope in self.scopes[one]]
        found += [scope for one in opened if write for scope in self.writing.get(one, ())]
        return tuple(dict.fromkeys(found))


_GOOGLE: Final = "https://www.googleapis.com/auth/"
_OUTLOOK: Final = "https://outlook.office.com/"
_MICROSOFT_LOGIN: Final = "https://login.microsoftonline.com/common/oauth2/v2.0/"

PROVIDERS: Final[Mapping[str, OAuthProvider]] = {
    one.name: one
    for one in (
        OAuthProvider(
            "google",
            "Google",
            "https://accounts.google.com/o/oauth2/v2/auth",
            "https://oauth2.googleapis.com/token",
            {
                "calendar": (f"{_GOOGLE}calendar.readonly",),
                "contacts": (f"{_GOOGLE}contacts.readonly",),
                "mail": ("https://mail.google.com/",),  # IMAP and SMTP know no smaller one
            },
            {"calendar": (f"{_GOOGLE}calendar.events",)},
            ("openid", "email"),
            {"access_type": "offline", "prompt": "consent"},  # without both there may be no refresh token
            "127.0.0.1",
            one_week=True,
            opens_own=True,
            client_files=True,
        ),
        OAuthProvider(
            "microsoft",
            "Microsoft",
            f"{_MICROSOFT_LOGIN}authorize",
            f"{_MICROSOFT_LOGIN}token",
            {"mail": (f"{_OUTLOOK}IMAP.AccessAsUser.All", f"{_OUTLOOK}SMTP.Send")},
            {},
            ("openid", "email", "profile", "offline_access"),
            {"prompt": "select_account"},
            "localhost",  # the one name for which any port is allowed
        ),
    )
}
