"""A strict WhatsApp on loopback, well-behaved or not: the Graph API of a number, signed webhooks, and people.

For tests of businesses, ours and yours: it posts webhooks again, several at once and out of order, refuses what Meta
refuses, and fails on purpose. It contacts nobody and needs no account. Begin with `server.py`. Without the server,
`WebhookSender` makes the webhooks alone:

    sender = WebhookSender(app_secret="...")
    hook = sender.post(sender.said(NUMBER, ANN, text_content("hello")), sender.status(NUMBER, ANN, wamid, "delivered"))
"""

from switchboard.testing.platform_server import Cut, Hang, MovableClock, Page
from switchboard.testing.whatsapp.business import BusinessMessage, WhatsAppBusiness
from switchboard.testing.whatsapp.errors import Fault, GraphError
from switchboard.testing.whatsapp.people import WhatsAppPeople
from switchboard.testing.whatsapp.posting import WebhookPoster
from switchboard.testing.whatsapp.server import ACCOUNT, APP_SECRET, TOKEN, GraphCall, WhatsAppServer
from switchboard.testing.whatsapp.webhooks import (
    ANN,
    NUMBER,
    OTHER_NUMBER,
    CloudPerson,
    Pricing,
    SignedWebhook,
    WebhookSender,
    pressed_button,
    reaction_to,
    signature_of,
    text_content,
    without_contacts,
)

__all__ = [
    "ACCOUNT",
    "ANN",
    "APP_SECRET",
    "NUMBER",
    "OTHER_NUMBER",
    "TOKEN",
    "BusinessMessage",
    "CloudPerson",
    "Cut",
    "Fault",
    "GraphCall",
    "GraphError",
    "Hang",
    "MovableClock",
    "Page",
    "Pricing",
    "SignedWebhook",
    "WebhookPoster",
    "WebhookSender",
    "WhatsAppBusiness",
    "WhatsAppPeople",
    "WhatsAppServer",
    "pressed_button",
    "reaction_to",
    "signature_of",
    "text_content",
    "without_contacts",
]
