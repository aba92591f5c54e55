"""Google's Calendar API v3 and People API v1, played strictly for tests."""

from switchboard.testing.google.calendar import OWN, GoogleCalendar
from switchboard.testing.google.calendar_api import ApiCall
from switchboard.testing.google.errors import GoogleRefusal, Refusal
from switchboard.testing.google.mails import SentMail
from switchboard.testing.google.server import GOOGLE_TOKEN, GoogleExchange, GoogleServer

__all__ = [
    "GOOGLE_TOKEN",
    "OWN",
    "ApiCall",
    "GoogleCalendar",
    "GoogleExchange",
    "GoogleRefusal",
    "GoogleServer",
    "Refusal",
    "SentMail",
]
