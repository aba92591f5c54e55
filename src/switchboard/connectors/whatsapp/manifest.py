"""The needs and abilities of WhatsApp, as the entry point `whatsapp`. Next: `channel.py`."""

from __future__ import annotations

from typing import Final

from switchboard.connectors.whatsapp.hook import hook_of
from switchboard.connectors.whatsapp.settings import MAX_BODY, MAX_FILE, MAX_LABEL, WhatsAppAccountSettings
from switchboard.ports.connector import Account, Capabilities, Identity, Manifest, Secret, Session


async def _open_account(account: Account) -> Session:
    from switchboard.connectors.whatsapp.channel import open_number  # noqa: PLC0415  the HTTP client, only when needed

    return await open_number(account)


def _tell_costs(account: Account, _: Identity) -> str:
    return f"Meta bills answers; what it reports is counted in: switchboard channels show {account.name}"


MANIFEST: Final = Manifest(
    name="whatsapp",
    channel="whatsapp",
    provider="whatsapp",
    title="WhatsApp",
    settings=WhatsAppAccountSettings,
    secrets=(
        Secret("token", "the token of a system user that does not expire, such as EAAB…"),
        Secret("app_secret", "the App Secret under App settings, Basic: Meta signs with it what it posts"),
    ),
    steps=(
        "Before you begin: Meta's terms forbid general-purpose assistants as the main purpose of a number, as Meta "
        "judges; a business that answers its own customers is allowed.",
        "Answers cost money: Meta bills each message, after a number of free ones a month; prices are Meta's, by "
        "country.",
        "At developers.facebook.com make an app of the type Business with the product WhatsApp.",
        "In Business settings make a system user, give it the app and the WhatsApp account, and create a token that "
        "does not expire, with whatsapp_business_messaging and whatsapp_business_management.",
        "Copy the App Secret under App settings, Basic.",
        "Copy the Phone number ID under WhatsApp, API Setup.",
        "Under WhatsApp, Configuration subscribe to the webhook field messages.",
        "public_url must be reachable by HTTPS with a real certificate; Switchboard tells Meta the URL itself.",
    ),
    capabilities=Capabilities(
        text_limit=4096,
        text_unit="utf16",
        caption_limit=MAX_BODY,
        no_caption=("audio/*",),
        markup="whatsapp",
        history="none",
        idempotency="lookup",
        typing_s=25.0,
        max_file_in=MAX_FILE,
        max_file_out=MAX_FILE,
        buttons=3,
        label_limit=MAX_LABEL,
        per_account_s=1 / 80,
        receive_window_s=60.0,
        on_uncertain="ask",
    ),
    to_do=_tell_costs,
    open=_open_account,
    hook=hook_of,
)
