"""Content of a Telegram message that is no text, as the words that a person would read. Pure; called by `passages.py`.

In: a message of the Bot API, however odd; out: passages. What the sender has not composed (a contact, the data of a web
app, a payment) is quoted. Takes linear time and raises nothing. Next: `kinds.py` for messages that nobody wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Final

from switchboard.core.channels.telegram import name_of
from switchboard.domain.envelope import Passage
from switchboard.ports.raw import Raw, at, child, integer, number, word

_MOST_ITEMS: Final = 100
"""Tasks, options or people that are named; Telegram allows fewer."""
_MAX_ITEM: Final = 512
_MAX_DATA: Final = 4096
"""Maximum characters of what a web app may send."""
_NO_DECIMALS: Final = frozenset(
    (
        "BIF",
        "CLP",
        "DJF",
        "GNF",
        "ISK",
        "JPY",
        "KMF",
        "KRW",
        "PYG",
        "RWF",
        "UGX",
        "VND",
        "VUV",
        "XAF",
        "XOF",
        "XPF",
        "XTR",
    )
)
_TELEGRAM: Final = "Telegram"


def describe_content(message: Raw) -> tuple[Passage, ...]:
    """What stands for the content; empty if its kind is not described."""
    kind = next((one for one in _KINDS if one in message), None)
    return tuple(_KINDS[kind](message)) if kind is not None else ()


def is_described(message: Raw) -> bool:
    """Whether `describe_content` has words for it."""
    return not _KINDS.keys().isdisjoint(message)


def _own(text: str) -> Iterator[Passage]:
    yield Passage(kind="own", text=text)


def _quoted(text: str, author: str | None = None) -> Iterator[Passage]:
    yield Passage(kind="quoted", text=text, author=author)


def _sticker(message: Raw) -> Iterator[Passage]:
    return _own(word(at(message, "sticker", "emoji")) or "(Sticker)")


def _venue(message: Raw) -> Iterator[Passage]:
    venue = child(message, "venue")
    said = ", ".join(filter(None, (word(venue.get("title")), word(venue.get("address")))))
    return _quoted(f"(Place: {said or 'without a name'}, {_coordinates(child(venue, 'location'))})")


def _location(message: Raw) -> Iterator[Passage]:
    return _own(f"(Location: {_coordinates(child(message, 'location'))})")


def _coordinates(location: Raw) -> str:
    found = (location.get(axis) for axis in ("latitude", "longitude"))
    return ", ".join(f"{value:.6f}" if isinstance(value, int | float) else "?" for value in found)


def _contact(message: Raw) -> Iterator[Passage]:
    contact = child(message, "contact")
    said = " ".join(filter(None, (name_of(contact), word(contact.get("phone_number")))))
    return _quoted(f"(Contact: {said})")


def _poll(message: Raw) -> Iterator[Passage]:
    poll = child(message, "poll")
    called = "Quiz" if poll.get("type") == "quiz" else "Poll"
    options = (f"- {_line(one.get('text'))}" for one in _items(poll.get("options")))
    return _own("\n".join((f"({called}: {_line(poll.get('question'))})", *options)))


def _checklist(message: Raw) -> Iterator[Passage]:
    checklist = child(message, "checklist")
    return _own("\n".join((f"(Checklist: {_line(checklist.get('title'))})", *tasks_in(checklist.get("tasks")))))


def tasks_in(tasks: object) -> Iterator[str]:
    """The lines of tasks, with a mark at those that are done."""
    for one in _items(tasks):
        yield f"[{'x' if one.get('completion_date') else ' '}] {_line(one.get('text'))}"


def _dice(message: Raw) -> Iterator[Passage]:
    return _own(f"(Dice: {number(at(message, 'dice', 'value'))})")


def _game(message: Raw) -> Iterator[Passage]:
    return _own(f"(Game: {_line(at(message, 'game', 'title'))})")


def _story(message: Raw) -> Iterator[Passage]:
    of = name_of(child(message, "story", "chat"))
    return _own(f"(Story{f' of {of}' if of else ''}, which bots cannot see)")


def _paid_media(message: Raw) -> Iterator[Passage]:
    paid = child(message, "paid_media")
    media = paid.get("paid_media")
    count = len(media) if isinstance(media, list) else 0
    return _own(f"({count} photos or videos for {number(paid.get('star_count')) or '?'} stars, which bots cannot see)")


def _invoice(message: Raw) -> Iterator[Passage]:
    invoice = child(message, "invoice")
    said = (_line(invoice.get(part)) for part in ("title", "description"))
    return _quoted(f"(Invoice: {', '.join((*filter(None, said), _amount(invoice)))})")


def _payment(message: Raw) -> Iterator[Passage]:
    """Told by Telegram, as an author that a person's own words do not have: a payment cannot be written."""
    paid = child(message, "successful_payment")
    return _quoted(f"(Payment of {_amount(paid)} for {_line(paid.get('invoice_payload')) or '?'})", _TELEGRAM)


def _refund(message: Raw) -> Iterator[Passage]:
    paid = child(message, "refunded_payment")
    return _quoted(f"(Refund of {_amount(paid)} for {_line(paid.get('invoice_payload')) or '?'})", _TELEGRAM)


def _amount(about: Raw) -> str:
    """An amount in its currency; Telegram counts in the smallest unit. XTR are its stars."""
    currency, smallest = word(about.get("currency")) or "?", about.get("total_amount")
    if number(smallest) is None or not isinstance(smallest, int):
        return f"? {currency}"
    amount = f"{smallest}" if currency in _NO_DECIMALS else f"{Decimal(smallest).scaleb(-2):.2f}"
    return f"{amount} stars" if currency == "XTR" else f"{amount} {currency}"


def _web_app(message: Raw) -> Iterator[Passage]:
    """The app has composed the data, and nobody knows what else than the person's choice is in it."""
    sent = child(message, "web_app_data")
    data = sent.get("data")
    yield Passage(kind="own", text=f"(Sent by the web app “{_line(sent.get('button_text')) or '?'}”)")
    if isinstance(data, str) and data.strip():
        yield Passage(kind="quoted", text=data.strip()[:_MAX_DATA])


def _users(message: Raw) -> Iterator[Passage]:
    shared = child(message, "users_shared")
    users = [_account(one, "user_id") for one in _items(shared.get("users"))]
    return _quoted(f"(Shared: {'; '.join(users) or '?'})")


def _chat(message: Raw) -> Iterator[Passage]:
    return _quoted(f"(Shared: {_account(child(message, 'chat_shared'), 'chat_id')})")


def _account(about: Raw, key: str) -> str:
    username = word(about.get("username"))
    names = (name_of({**about, "username": None}), f"@{username}" if username else None, integer(about.get(key)))
    return " ".join(filter(None, names)) or "?"


def _passport(_: Raw) -> Iterator[Passage]:
    return _own("(Telegram Passport data, which is encrypted and was not read)")


def _items(found: object) -> Sequence[Raw]:
    return [child(one) for one in found[:_MOST_ITEMS]] if isinstance(found, list) else ()


def _line(text: object) -> str:
    return " ".join(text[:_MAX_ITEM].split()) if isinstance(text, str) else ""


_KINDS: Final[Mapping[str, Callable[[Raw], Iterator[Passage]]]] = {
    "sticker": _sticker,
    "venue": _venue,  # before its location, which old clients get beside it
    "location": _location,
    "contact": _contact,
    "poll": _poll,
    "checklist": _checklist,
    "dice": _dice,
    "game": _game,
    "story": _story,
    "paid_media": _paid_media,
    "invoice": _invoice,
    "successful_payment": _payment,
    "refunded_payment": _refund,
    "web_app_data": _web_app,
    "users_shared": _users,
    "chat_shared": _chat,
    "passport_data": _passport,
}
"""By the field of a message."""
