"""By what somebody is found: addresses and numbers in one spelling, names without case and accents. Pure.

The mirror keeps the keys of each card, and `resolve.py` makes those of what is looked for. A key has its kind before
it, so that a number is no name on a platform.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from hashlib import md5
from typing import Final

import phonenumbers
from msgspec import Struct
from phonenumbers import NumberParseException, PhoneNumberFormat

from switchboard.modules.contacts.cards import Card, WayKind

_LONGEST: Final = 500
"""Characters of a key; an index has a limit."""
_MOST_WORDS: Final = 40
_LONGEST_WORD: Final = 100
"""Some signs are many, once they are without accents."""
_GROUP: Final = "=group"
_WORD: Final = re.compile(r"[^\W_]+")
_EXTRA_LETTERS: Final = str.maketrans({"ß": "ss", "ø": "o", "ł": "l", "đ": "d", "æ": "ae", "œ": "oe"})
_HANDLE: Final = re.compile(r"(?:[\w-]+:)?@?(.+)", re.DOTALL)


def words_of(text: str) -> tuple[str, ...]:
    """The words of a name: in lower case, without accents, each once, at most 40."""
    folded = unicodedata.normalize("NFKD", text[:_LONGEST].casefold().translate(_EXTRA_LETTERS))
    plain = "".join(sign for sign in folded if not unicodedata.combining(sign))
    return tuple(dict.fromkeys(word[:_LONGEST_WORD] for word in _WORD.findall(plain)))[:_MOST_WORDS]


def key_of(kind: WayKind, value: str, region: str) -> str:
    """The key of a way; a number without the code of a country is one of `region`, such as `DE`; empty: of none.

    What is no valid number stays as it is written, and equals only itself. Postal addresses have no key.
    """
    return _KEYS[kind](value, region)[:_LONGEST]


def _mail_key(value: str, _: str) -> str:
    return f"email {value.strip().casefold()}"


def _phone_key(value: str, region: str) -> str:
    return f"phone {e164_of(value, region) or ''.join(value.split())}"


def _handle_key(value: str, _: str) -> str:
    match = _HANDLE.fullmatch(value.strip())
    return f"handle {match[1].casefold() if match else ''}"


_KEYS: Final[Mapping[WayKind, Callable[[str, str], str]]] = {
    "email": _mail_key,
    "phone": _phone_key,
    "handle": _handle_key,
    "address": lambda _value, _region: "",
}


def keys_sought(text: str, region: str) -> tuple[str, ...]:
    """The keys that somebody may mean by a text; none for a text that can only be a name."""
    text = text.strip()
    if not text or len(text) > _LONGEST:
        return ()
    keys = [key_of("handle", text, region)]
    if "@" in text.removeprefix("@"):
        keys.append(key_of("email", text.removeprefix("mailto:"), region))
    if any(sign.isdigit() for sign in text):
        keys.append(key_of("phone", text.removeprefix("tel:"), region))
    return tuple(keys)


def e164_of(number: str, region: str) -> str:
    """A valid number as +491701234567, without its extension; empty for anything else, such as 110."""
    try:
        parsed = phonenumbers.parse(number[:100], region or None)
    except NumberParseException:
        return ""
    if not phonenumbers.is_valid_number(parsed):
        return ""
    parsed.extension = None
    return str(phonenumbers.format_number(parsed, PhoneNumberFormat.E164))


class CardWords(Struct, frozen=True):
    """The words of a card's names, by which it is found and ranked without being read again."""

    full: tuple[str, ...]
    """The whole name."""
    parts: frozenset[str]
    """Of the whole name, and of the given and the family name."""
    spoken: tuple[str, ...]
    """Given and family name."""
    nicknames: tuple[tuple[str, ...], ...]


def search_words(card: Card) -> str:
    """All words by which a card is found, each after a blank; a line for each kind, as `card_words` reads them.

    Names of a group of contacts begin with a mark.
    """
    lines = (
        _GROUP if card.group else "",
        _line_of(words_of(card.name)),
        _line_of(words_of(f"{card.given} {card.family}")),
        "\t".join(_line_of(words_of(one)) for one in card.nicknames),
        _line_of(words_of(card.organisation)),
    )
    return "".join(f"{line}\n" for line in lines)


def card_words(kept: str) -> CardWords:
    """What `search_words` has written."""
    _, full, spoken, nicknames, *_ = (*kept.split("\n"), "", "", "", "")
    names = tuple(full.split()), tuple(spoken.split())
    return CardWords(
        names[0],
        frozenset((*names[0], *names[1])),
        names[1],
        tuple(tuple(one.split()) for one in nicknames.split("\t")),
    )


def index_words(kept: str) -> tuple[str, ...]:
    """By what a card with these words (`search_words`) is looked up: each word, and the digest of each name."""
    group, *lines = kept.split("\n")
    if group:
        return ()
    names = [tuple(name.split()) for line in lines for name in line.split("\t")]
    digests = (name_digest(name) for name in names if name)
    return tuple(dict.fromkeys((*(word for name in names for word in name), *digests)))


def name_digest(words: Iterable[str]) -> str:
    """Of a whole name, in whatever order its words are; no word looks like it."""
    return f"={md5(' '.join(sorted(words)).encode(), usedforsecurity=False).hexdigest()}"


def _line_of(words: Iterable[str]) -> str:
    return "".join(f" {word}" for word in words)
