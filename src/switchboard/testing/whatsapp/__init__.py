"""WhatsApp for tests: people who write to the numbers of a business, and the signed webhooks that tell it of them.

    sender = WebhookSender(app_secret="...")
    hook = sender.post(sender.said(NUMBER, ANN, text_content("hello")), sender.status(NUMBER, ANN, wamid, "delivered"))

`hook.body` and `hook.headers` are what Meta posts. A test posts them when, as often and in what order it likes: Meta
repeats a webhook for up to seven days, in any order, and several messages and numbers may share one. Next:
`webhooks.py`.
"""

from switchboard.testing.whatsapp.webhooks import (
    ANN,
    NUMBER,
    CloudPerson,
    SignedWebhook,
    WebhookSender,
    pressed_button,
    reaction_to,
    signature_of,
    text_content,
    without_contacts,
)

__all__ = [
    "ANN",
    "NUMBER",
    "CloudPerson",
    "SignedWebhook",
    "WebhookSender",
    "pressed_button",
    "reaction_to",
    "signature_of",
    "text_content",
    "without_contacts",
]
