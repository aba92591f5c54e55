"""The languages whose words are found by their stems. Read by `app/settings.py` and `terms.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

StemmedLanguage = Literal[
    "da", "de", "en", "es", "fi", "fr", "hu", "it", "nl", "no", "pl", "pt", "ro", "ru", "sv", "tr"
]
"""ISO 639-1 codes."""

STEMMED: Final[Mapping[str, str]] = {
    "da": "Danish",
    "de": "German",
    "en": "English",
    "es": "Spanish",
    "fi": "Finnish",
    "fr": "French",
    "hu": "Hungarian",
    "it": "Italian",
    "nl": "Dutch",
    "no": "Norwegian",
    "pl": "Polish",
    "pt": "Portuguese",
    "ro": "Romanian",
    "ru": "Russian",
    "sv": "Swedish",
    "tr": "Turkish",
}
"""Snowball's names for them."""
