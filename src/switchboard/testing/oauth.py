"""A strict OAuth 2 provider on loopback, for tests: `async with OAuthServer() as provider`, and a client pointed at it.

In: pages of consent, requests for tokens, and what `provider.person` does at the page; out: codes that are good once,
tokens that expire by `provider.clock`, refresh tokens that rotate or not, and refusals like Google's. It asks for PKCE
with S256 always. Mail servers ask it about access tokens at `introspection_url`. Next: `loopback.py`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import parse_qsl, urlencode, urlsplit

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from switchboard.domain.json_values import JsonObject
from switchboard.testing.platform_server import BrokenOff, Cut, Endpoint, Hang, MovableClock, PlatformServer, wait_gone

CLIENT_ID: Final = "1054-test.apps.example"
CLIENT_SECRET: Final = "GOCSPX-of-nobody"  # noqa: S105  of nobody
WEEK_S: Final = 7 * 86_400
_CODE_S: Final = 600
_VERIFIER: Final = re.compile(r"[A-Za-z0-9._~-]{43,128}")
_CHALLENGE: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_FORM: Final = "application/x-www-form-urlencoded"
_HOSTS: Final = frozenset({"127.0.0.1", "localhost"})
_OF_PERSON: Final = frozenset({"openid", "email", "profile"})

Rotation = Literal["none", "grace", "strict"]
"""Whether a refresh gives another refresh token. `grace`: the old one is good until the new one is used, as where
answers may be lost; `strict`: whoever uses an old one ends the consent, as RFC 9700 has it."""


class OAuthPerson(Struct, frozen=True):
    """Who is at the page of consent. `leaves_out` are scopes that they untick."""

    user: str = "ann@example.org"
    leaves_out: frozenset[str] = frozenset()
    denies: bool = False


class OAuthError(Exception):
    """A refusal, as in section 5.2 of RFC 6749."""

    def __init__(self, error: str, description: str = "", status: int = 400) -> None:
        super().__init__(f"{error}: {description}")
        self.error = error
        self.description = description
        self.status = status


class TokenCall(Struct, frozen=True):
    """A request for tokens. `error` is that of the refusal; empty if there were tokens."""

    grant: str
    error: str


@dataclass(slots=True)
class _Consent:
    """What somebody has granted; all tokens made of it end with it."""

    user: str
    scopes: tuple[str, ...]
    given_at: float
    lasts: bool
    ended: bool = False


class _Code(Struct, frozen=True):
    consent: _Consent
    challenge: str
    redirect_uri: str
    expires_at: float


@dataclass(slots=True)
class _RefreshToken:
    consent: _Consent
    replaced_by: str = ""


class _IssuedAccess(Struct, frozen=True):
    consent: _Consent
    expires_at: float


class OAuthServer(PlatformServer[Hang | Cut]):
    """`calls` are the requests for tokens, `pages` those for the page of consent, with their parameters.

    `trial`: consent ends after seven days, as for Google's projects in Testing; `tells_trial`: and the answers say so.
    `spoil("token", Cut())` and the like break the next requests.
    """

    def __init__(
        self, *, rotation: Rotation = "none", clock: MovableClock | None = None, access_s: float = 3600, port: int = 0
    ) -> None:
        super().__init__(
            Route("/authorize", Endpoint(self._show_page), methods=["GET"]),
            Route("/token", Endpoint(self._answer_token), methods=["POST"]),
            Route("/revoke", Endpoint(self._answer_revocation), methods=["POST"]),
            Route("/introspect", Endpoint(self._answer_introspection), methods=["GET"]),
            port=port,
        )
        self.clock = clock or MovableClock()
        self.rotation = rotation
        self.access_s = access_s
        self.trial = self.tells_trial = False
        self.person = OAuthPerson()
        self.client_secret = CLIENT_SECRET
        self.calls: list[TokenCall] = []
        self.pages: list[Mapping[str, str]] = []
        self._codes: dict[str, _Code] = {}
        self._refresh: dict[str, _RefreshToken] = {}
        self._access: dict[str, _IssuedAccess] = {}

    @property
    def texts(self) -> list[str]:
        return []

    @property
    def introspection_url(self) -> str:
        """A mail server appends a token, and is told whose it is."""
        return f"{self.url}/introspect?token="

    def client_file(self, kind: str = "installed") -> bytes:
        """The JSON of a client that a person has downloaded from Google; `web` is one of the wrong kind."""
        ends = {"auth_uri": f"{self.url}/authorize", "token_uri": f"{self.url}/token"}
        client = {"client_id": CLIENT_ID, "project_id": "house", "client_secret": self.client_secret, **ends}
        return json.dumps({kind: {**client, "redirect_uris": ["http://localhost"]}}).encode()

    def end_consents(self, user: str = "") -> None:
        """Somebody takes back what they have granted; by default everybody does."""
        for one in self._refresh.values():
            if not user or one.consent.user == user:
                one.consent.ended = True

    def expire_access(self) -> None:
        """All access tokens end at once, before their time."""
        self._access.clear()

    def user_of(self, token: str) -> str | None:
        """Whose access token it is; None for one that is not good now."""
        found = self._access.get(token)
        return found.consent.user if found and self._is_good(found) else None

    def scopes_of(self, token: str) -> tuple[str, ...]:
        """What it opens."""
        found = self._access.get(token)
        return found.consent.scopes if found and self._is_good(found) else ()

    def _is_good(self, issued: _IssuedAccess) -> bool:
        return not issued.consent.ended and self.clock() < issued.expires_at

    # The page of consent ----------------------------------------------------------------------------------------------

    async def _show_page(self, request: Request) -> Response:
        """What is wrong with the client is told on the page; what else is wrong, at the address to which it leads."""
        try:
            given = _read_parameters(request.url.query)
            redirect_uri = self._checked_redirect(given)
        except OAuthError as error:
            return PlainTextResponse(f"Error 400: {error.error}\n{error.description}", 400)
        self.pages.append(given)
        try:
            answer = {"code": self._issue_code(given, redirect_uri)}
        except OAuthError as error:
            answer = {"error": error.error, "error_description": error.description}
        state = {"state": given["state"]} if "state" in given else {}
        return RedirectResponse(f"{redirect_uri}?{urlencode({**state, **answer})}", 302)

    def _checked_redirect(self, given: Mapping[str, str]) -> str:
        if given.get("client_id") != CLIENT_ID:
            raise OAuthError("invalid_client", "The OAuth client was not found.")
        redirect_uri = given.get("redirect_uri", "")
        parts = urlsplit(redirect_uri)
        if parts.scheme != "http" or parts.hostname not in _HOSTS or parts.query or parts.fragment:
            raise OAuthError("redirect_uri_mismatch", f"not registered: {redirect_uri}")
        return redirect_uri

    def _issue_code(self, given: Mapping[str, str], redirect_uri: str) -> str:
        if given.get("response_type") != "code":
            raise OAuthError("unsupported_response_type")
        if given.get("code_challenge_method") != "S256" or not _CHALLENGE.fullmatch(given.get("code_challenge", "")):
            raise OAuthError("invalid_request", "PKCE with S256 is required")
        asked = tuple(given.get("scope", "").split())
        if not asked:
            raise OAuthError("invalid_scope", "Missing required parameter: scope")
        if self.person.denies:
            raise OAuthError("access_denied")
        lasts = given.get("access_type") == "offline" or "offline_access" in asked
        granted = tuple(one for one in asked if one not in self.person.leaves_out)
        consent = _Consent(self.person.user, granted, self.clock(), lasts)
        code = f"4/{secrets.token_urlsafe(24)}"
        self._codes[code] = _Code(consent, given["code_challenge"], redirect_uri, self.clock() + _CODE_S)
        return code

    # Tokens -----------------------------------------------------------------------------------------------------------

    async def _answer_token(self, request: Request) -> Response:
        fault = self.next_fault("token")
        if isinstance(fault, Hang) and not fault.taken:
            await wait_gone(request)
        if isinstance(fault, Cut) and not fault.taken:
            raise BrokenOff
        body = (await request.body()).decode()
        answer, status = self._tokens_for(request, body)
        self.wake_waiting()
        if isinstance(fault, Hang):
            await wait_gone(request)
        if fault is not None:
            raise BrokenOff
        return JSONResponse(answer, status, headers={"cache-control": "no-store"})

    def _tokens_for(self, request: Request, body: str) -> tuple[JsonObject, int]:
        grant = ""
        try:
            given = _form_in(request, body)
            grant = given.get("grant_type", "")
            self._check_client(given, request.headers.get("authorization", ""))
            answer = self._answer_grant(grant, given)
        except OAuthError as error:
            self.calls.append(TokenCall(grant, error.error))
            return {"error": error.error, "error_description": error.description}, error.status
        self.calls.append(TokenCall(grant, ""))
        return answer, 200

    def _answer_grant(self, grant: str, given: Mapping[str, str]) -> JsonObject:
        if grant == "authorization_code":
            return self._of_code(given)
        if grant == "refresh_token":
            return self._of_refresh(given)
        raise OAuthError("unsupported_grant_type", grant)

    def _check_client(self, given: Mapping[str, str], authorization: str) -> None:
        client_id, secret = given.get("client_id", ""), given.get("client_secret", "")
        if authorization.startswith("Basic "):
            client_id, _, secret = base64.b64decode(authorization[6:]).decode().partition(":")
        if client_id != CLIENT_ID or secret != self.client_secret:
            raise OAuthError("invalid_client", "The provided client secret is invalid.", 401)

    def _of_code(self, given: Mapping[str, str]) -> JsonObject:
        code = self._codes.pop(given.get("code", ""), None)
        if code is None or self.clock() > code.expires_at:
            raise OAuthError("invalid_grant", "Malformed auth code.")
        if given.get("redirect_uri") != code.redirect_uri:
            raise OAuthError("redirect_uri_mismatch", "Bad Request")
        verifier = given.get("code_verifier", "")
        if not _VERIFIER.fullmatch(verifier) or _challenge_of(verifier) != code.challenge:
            raise OAuthError("invalid_grant", "Invalid code verifier.")
        new = self._new_refresh(code.consent) if code.consent.lasts else ""
        return self._answer_of(code.consent, new)

    def _of_refresh(self, given: Mapping[str, str]) -> JsonObject:
        name = given.get("refresh_token", "")
        held = self._refresh.get(name)
        if held is None or self._has_ended(held.consent):
            raise OAuthError("invalid_grant", "Token has been expired or revoked.")
        if held.replaced_by and self.rotation == "strict":
            held.consent.ended = True
            raise OAuthError("invalid_grant", "Token has been used before.")
        if self.rotation == "grace":
            for old in [old for old, one in self._refresh.items() if one.replaced_by == name]:
                del self._refresh[old]  # its successor has arrived
        if self.rotation == "none":
            return self._answer_of(held.consent, "")
        held.replaced_by = self._new_refresh(held.consent)
        return self._answer_of(held.consent, held.replaced_by)

    def _has_ended(self, consent: _Consent) -> bool:
        return consent.ended or (self.trial and self.clock() > consent.given_at + WEEK_S)

    def _new_refresh(self, consent: _Consent) -> str:
        name = f"1//{secrets.token_urlsafe(32)}"
        self._refresh[name] = _RefreshToken(consent)
        return name

    def _answer_of(self, consent: _Consent, refresh_token: str) -> JsonObject:
        token = f"ya29.{secrets.token_urlsafe(32)}"
        self._access[token] = _IssuedAccess(consent, self.clock() + self.access_s)
        answer: JsonObject = {"access_token": token, "expires_in": int(self.access_s), "token_type": "Bearer"}
        answer |= {"scope": " ".join(consent.scopes)}
        answer |= {"refresh_token": refresh_token} if refresh_token else {}
        if self.trial and self.tells_trial:
            answer |= {"refresh_token_expires_in": int(consent.given_at + WEEK_S - self.clock())}
        if "openid" in consent.scopes:
            answer |= {"id_token": self._id_token(consent)}
        return answer

    def _id_token(self, consent: _Consent) -> str:
        now = int(self.clock())
        about = {"iss": self.url, "sub": "1076", "aud": CLIENT_ID, "iat": now, "exp": now + 3600}
        about |= {"email": consent.user} if _OF_PERSON & set(consent.scopes) - {"openid"} else {}
        return ".".join(
            _encode_unpadded(json.dumps(part).encode()) for part in ({"alg": "RS256"}, about, {"of": "nobody"})
        )

    # Others who ask ---------------------------------------------------------------------------------------------------

    async def _answer_revocation(self, request: Request) -> Response:
        given = _read_parameters((await request.body()).decode())
        held = self._refresh.get(given.get("token", "")) or self._access.get(given.get("token", ""))
        if held is None:
            return JSONResponse({"error": "invalid_token"}, 400)
        held.consent.ended = True
        return JSONResponse({})

    async def _answer_introspection(self, request: Request) -> Response:
        user = self.user_of(request.query_params.get("token", ""))
        return JSONResponse({"active": "yes", "user": user} if user else {"active": "no"})


def _form_in(request: Request, body: str) -> Mapping[str, str]:
    if request.headers.get("content-type", "").partition(";")[0] != _FORM or request.url.query:
        raise OAuthError("invalid_request", "the parameters are a form in the body")
    return _read_parameters(body)


def _read_parameters(query: str) -> Mapping[str, str]:
    """Parameters, each of which may be there once."""
    pairs = parse_qsl(query, keep_blank_values=True)
    if len({name for name, _ in pairs}) < len(pairs):
        raise OAuthError("invalid_request", "a parameter is there twice")
    return dict(pairs)


def _challenge_of(verifier: str) -> str:
    return _encode_unpadded(hashlib.sha256(verifier.encode()).digest())


def _encode_unpadded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
