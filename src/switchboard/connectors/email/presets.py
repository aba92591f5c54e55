"""Providers of mailboxes at which people sign in by OAuth 2: Gmail and Microsoft 365. Data of `manifest.py`.

Both file what is sent through their SMTP servers, which `sent_copy = "auto"` knows by their names.
"""

from __future__ import annotations

from typing import Final

from switchboard.ports.connector import SignInPreset

GMAIL: Final = SignInPreset(
    title="Gmail",
    provider="google",
    opens=("mail",),
    settings={
        "imap": {"host": "imap.gmail.com", "port": 993},
        "smtp": {"host": "smtp.gmail.com", "port": 465},
    },
    steps=(
        "Create a separate mailbox for your butler; it answers everything that arrives there.",
        "At https://console.cloud.google.com make a project of your own. Under Google Auth Platform, Audience, choose "
        "External and publish the app: while it is in Testing, every sign-in ends after seven days.",
        "Under Clients make a client of the type Desktop app, and download its JSON.",
        "When you sign in, Google warns that it has not verified the app, which is yours: Advanced leads on.",
    ),
)
MICROSOFT: Final = SignInPreset(
    title="Microsoft 365",
    provider="microsoft",
    opens=("mail",),
    settings={
        "imap": {"host": "outlook.office365.com", "port": 993},
        "smtp": {"host": "smtp.office365.com", "port": 587},
    },
    steps=(
        "Create a separate mailbox for your butler; it answers everything that arrives there.",
        "At https://entra.microsoft.com, App registrations, register an app. Under Authentication add the platform "
        "Mobile and desktop applications with the redirect URI http://localhost, and allow public client flows.",
        "Under API permissions add the delegated permissions IMAP.AccessAsUser.All and SMTP.Send.",
        "Copy the application (client) ID. A mailbox of an organisation must allow IMAP and authenticated SMTP.",
    ),
)
