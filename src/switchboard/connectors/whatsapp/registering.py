"""Where Meta posts the webhooks of a number: set, and looked at. Called by `channel.py`.

A business has many numbers and an app one URL, so the URL is set for the number alone. Next: `hook.py`.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

from switchboard.connectors.kernel.requests import NotAnswered
from switchboard.connectors.whatsapp.graph import GraphClient, GraphRefusal
from switchboard.connectors.whatsapp.hook import challenge_word, secret_proof
from switchboard.connectors.whatsapp.refusals import describe_refusal, needs_person
from switchboard.connectors.whatsapp.settings import MAX_URL
from switchboard.ports.connector import Account, Busy, SignInRefused
from switchboard.ports.raw import Raw, at, child, word

FIELDS: Final = "verified_name,display_phone_number,webhook_configuration,health_status"
_UNVERIFIED: Final = 2200
_PROOF_REFUSED: Final = "appsecret_proof"
"""Meta has no code of its own for a proof that does not fit."""
_OTHER_APP: Final = (
    "the app_secret is not that of the app to which the token belongs: copy the App Secret under App settings, Basic"
)


def checked_url(account: Account) -> str:
    """Where Meta can post. Raises SignInRefused."""
    url = account.hook_url
    if url is None:
        raise SignInRefused("WhatsApp posts to the server: set public_url in the settings, where Meta reaches it")
    found = urlsplit(url)
    if found.scheme != "https" and found.hostname not in ("127.0.0.1", "localhost"):
        raise SignInRefused(f"Meta posts to HTTPS with a real certificate alone: public_url is {found.scheme}://")
    if len(url) > MAX_URL:
        raise SignInRefused(f"Meta takes URLs of up to {MAX_URL} characters: {url} is longer")
    return url


class NumberWebhook(Struct, frozen=True):
    """The webhook of an account's number, which has this id."""

    graph: GraphClient
    account: Account
    number_id: str

    async def about_number(self) -> Raw:
        """The number with its webhook and its health. Raises SignInRefused, OSError."""
        try:
            return await self.graph.read(self.number_id, fields=FIELDS, appsecret_proof=secret_proof(self.account))
        except GraphRefusal as error:
            if _PROOF_REFUSED in error.told:
                raise SignInRefused(_OTHER_APP) from None
            if needs_person(error) or error.subcode:
                raise SignInRefused(_why_unknown(error, self.number_id)) from None
            raise OSError(describe_refusal(error)) from None

    async def register(self) -> None:
        """Let Meta post to us. Raises SignInRefused, Busy, OSError."""
        url, about = checked_url(self.account), await self.about_number()
        now = _url_in(about)
        if now and now != url and not self._is_ours(now):
            raise Busy(_name_foreign(now))
        try:
            await self._subscribe_app(about)
            if now != url:
                await self._set_url(url)
        except GraphRefusal as error:
            if needs_person(error):
                raise SignInRefused(describe_refusal(error)) from None
            told = f"Meta does not reach {url}: {error.told}" if error.code == _UNVERIFIED else describe_refusal(error)
            raise OSError(told) from None

    async def trouble(self) -> str | None:
        """Why messages may not arrive; None if Meta reports no trouble. Raises SignInRefused, Busy."""
        try:
            about = await self.about_number()
        except OSError as error:
            return f"Meta does not answer: {error}"
        url = _url_in(about)
        if url != self.account.hook_url:
            raise Busy(_name_foreign(url) if url else "somebody has deleted the webhook of this number")
        return _why_ill(about)

    async def _subscribe_app(self, about: Raw) -> None:
        """Have the app hear of the account. Only if it does not: the request would also delete a URL of the account."""
        account_id, app_id = _id_of_entity(about, "WABA"), _id_of_entity(about, "APP")
        if account_id is None:
            raise NotAnswered("Meta does not say to which WhatsApp account the number belongs")
        found = await self.graph.read(f"{account_id}/subscribed_apps")
        apps = found.get("data")
        known = [at(one, "whatsapp_business_api_data", "id") for one in apps] if isinstance(apps, list) else []
        if app_id not in known:
            await self.graph.post(f"{account_id}/subscribed_apps", {})

    async def _set_url(self, url: str) -> None:
        about = {"override_callback_uri": url, "verify_token": challenge_word(self.account)}
        await self.graph.post(self.number_id, {"webhook_configuration": about})

    def _is_ours(self, url: str) -> bool:
        """Whether it belongs to this account, perhaps at an earlier address of the server."""
        return urlsplit(url).path.endswith(f"/hooks/{self.account.name}")


def name_of_number(about: Raw) -> str:
    """What people call it."""
    names = (word(about.get("verified_name")), word(about.get("display_phone_number")))
    return " ".join(filter(None, names))


def _why_unknown(error: GraphRefusal, number_id: str) -> str:
    if needs_person(error):
        return describe_refusal(error)
    return f"Meta shows no number {number_id} to this token: copy the Phone number ID, and give the token its account"


def _why_ill(about: Raw) -> str | None:
    """Why the number can send nothing, in Meta's words."""
    health = child(about, "health_status")
    if health.get("can_send_message") != "BLOCKED":
        return None
    entities = health.get("entities")
    blocked = (
        [one for one in entities if at(one, "can_send_message") == "BLOCKED"] if isinstance(entities, list) else []
    )
    said = (word(at(one, "errors", 0, "error_description")) for one in blocked)
    return f"Meta lets the number send nothing: {next(filter(None, said), 'see the WhatsApp Manager')}"


def _url_in(about: Raw) -> str:
    return word(at(about, "webhook_configuration", "phone_number")) or ""


def _id_of_entity(about: Raw, kind: str) -> str | None:
    entities = at(about, "health_status", "entities")
    found = [one for one in entities if at(one, "entity_type") == kind] if isinstance(entities, list) else []
    return word(at(found[0], "id")) if found else None


def _name_foreign(url: str) -> str:
    """The URL without its path, which is often a secret."""
    return f"another program receives for this number, at {urlsplit(url).hostname}: delete that webhook"
