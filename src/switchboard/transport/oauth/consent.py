"""The page at which a person consents, and the address to which it leads: authorization code with PKCE. Pure.

`sign_in.py` makes a `ConsentRequest`, whose address a browser opens. In: the address to which the provider leads at the
end, as the loopback listener has got it or a person has pasted it; out: the code, or what went wrong there. Next:
`sign_in.py`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

from switchboard.core.text.visible import visible_start
from switchboard.domain.errors import InvalidInput
from switchboard.transport.oauth.providers import OAuthProvider
from switchboard.transport.oauth.token_file import OAuthClient

_BEGIN_AGAIN: Final = "begin the sign-in again"
_DENIED: Final = "access_denied"


class ConsentFailed(InvalidInput):
    """The page of consent has led here without a code: nothing more comes of this request."""


@dataclass(frozen=True, slots=True)
class ConsentRequest:
    """What is asked for. `state` and `verifier` are secrets of this request alone, made at random."""

    client: OAuthClient
    scopes: tuple[str, ...]
    redirect_uri: str
    state: str = field(repr=False)
    verifier: str = field(repr=False)
    user: str = ""
    """Who should consent, if that is known."""

    def page(self, provider: OAuthProvider) -> str:
        """The address of the page."""
        challenge = base64.urlsafe_b64encode(hashlib.sha256(self.verifier.encode()).digest()).decode().rstrip("=")
        asked = {
            "response_type": "code",
            "client_id": self.client.client_id,
            "redirect_uri": self.redirect_uri,
            "scope": " ".join((*self.scopes, *provider.base_scopes)),
            "state": self.state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            **provider.asks,
        }
        asked |= {"login_hint": self.user} if self.user else {}
        return f"{self.client.authorization_endpoint}?{urlencode(asked)}"

    def code_in(self, address: str) -> str:
        """The code in the address to which the page has led.

        Raises ConsentFailed if there is none, and InvalidInput for an address that is not that of this request: there
        may be another one.
        """
        given = self._answer_in(address)
        if not hmac.compare_digest(given.get("state", "").encode(), self.state.encode()):
            raise InvalidInput(
                "this address belongs to another sign-in (its `state` is not the one of this one): paste the address "
                "to which the page of this sign-in has led"
            )
        if error := given.get("error"):
            raise ConsentFailed(_describe_refusal(error, given.get("error_description", "")))
        if not given.get("code"):
            raise ConsentFailed(f"the provider has given no code: {_BEGIN_AGAIN}")
        return given["code"]

    def _answer_in(self, address: str) -> Mapping[str, str]:
        parts, wanted = _split_address(address.strip()), urlsplit(self.redirect_uri)
        given = {} if parts is None else dict(parse_qsl(parts.query))
        if parts is None or not given:
            raise InvalidInput(
                "this is not the address at the end: after you have consented, the browser cannot open a page whose "
                f"address begins with {self.redirect_uri}; paste all of that address"
            )
        if (parts.scheme, parts.netloc) != (wanted.scheme, wanted.netloc):
            raise InvalidInput(
                f"this address leads to {visible_start(f'{parts.scheme}://{parts.netloc}', 80)}, and this sign-in "
                f"waits at {self.redirect_uri}: paste the address to which the page of this sign-in has led"
            )
        return given


def _split_address(address: str) -> SplitResult | None:
    """None: it is none."""
    try:
        return urlsplit(address)
    except ValueError:
        return None


def _describe_refusal(error: str, description: str) -> str:
    if error == _DENIED:
        return f"the consent was denied at the provider; if that was a mistake, {_BEGIN_AGAIN}"
    said = visible_start(" ".join(f"{error} {description}".split()), 300)
    return f"the provider refuses the consent ({said}); see the settings of the OAuth client, then {_BEGIN_AGAIN}"
