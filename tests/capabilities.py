"""The page with the abilities of all channels, made of their manifests.

`make capabilities` writes `docs/channels/README.md`; `tests/unit/test_manifests.py` compares. In: the entry points of
`switchboard.connectors`; out: a table with a column for each that connects accounts. What no manifest says, how threads
and recordings arrive, stands here in words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

from switchboard.ports.connector import Capabilities, Manifest

PAGE: Final = Path(__file__).parent.parent / "docs" / "channels" / "README.md"
_GIB: Final = 1 << 30
_MIB: Final = 1 << 20
_MB: Final = 1_000_000

_PREFACE: Final = """# What each channel can do

`make capabilities` makes this page from the manifests of the packages. Limits are the platform's own, and Switchboard \
keeps to them: a long reply is sent in several messages, a file that is too large is named in the text, choices \
without buttons are words of the text. [connectors.md](../connectors.md) says what all channels have in common, \
[webhook.md](webhook.md) how other programs send messages, and [add a channel](../add-a-channel.md) how to connect \
another platform.

"""

_UNITS: Final = {"bytes": "bytes of UTF-8", "code_points": "characters", "utf16": "units of UTF-16"}
_MARKUP: Final = {
    "plain": "none",
    "entities": "marks by position",
    "html": "HTML, and the same as plain text",
    "markdown": "Markdown",
    "whatsapp": "`*bold*`, `_italic_`, `~struck~`, code, lists",
}
_HISTORY: Final = {
    "cursor": "fetched from the history",
    "window": "fetched or sent again, for as long as the platform keeps them",
    "none": "lost, unless the platform posts them again",
}
_UNCERTAIN: Final = {
    "ask": "an operator is asked",
    "resend_marked": "sent again, with a note that it may be a repeat",
    "drop": "not sent again",
}
_STRANGERS: Final = {"pair": "after approval", "listed": "if they are listed", "open": "at once"}
_THREADS: Final = {
    "discord": "threads and posts of forums",
    "email": "mails that answer each other",
    "slack": "threads, and what begins one",
    "telegram": "topics of forums",
    "whatsapp": "none",
}
_VOICE: Final = {
    "discord": "voice messages",
    "email": "as files of a mail",
    "slack": "audio clips",
    "telegram": "voice and video messages",
    "whatsapp": "voice messages",
}


def page(manifests: Sequence[Manifest]) -> str:
    """The text of the page. Raises KeyError if a channel has no words here."""
    names = (f"[{one.platform}]({one.name}.md)" for one in manifests)
    head = f"| | {' | '.join(names)} |\n|---|{'---|' * len(manifests)}\n"
    rows = (f"| {name} | {' | '.join(cell(one) for one in manifests)} |\n" for name, cell in _ROWS.items())
    return f"{_PREFACE}{head}{''.join(rows)}"


def manifests() -> list[Manifest]:
    """Of all channels that connect accounts, by name."""
    found = (one.load() for one in entry_points(group="switchboard.connectors"))
    return sorted((one for one in found if one.connects), key=lambda one: one.name)


def _length(limit: int, able: Capabilities) -> str:
    return f"{limit:,} {_UNITS[able.text_unit]}"


def _size(size: int) -> str:
    if size % _GIB == 0:
        return f"{size // _GIB} GiB"
    return f"{size // _MIB} MiB" if size % _MIB == 0 else f"{size / _MB:.0f} MB"


def _caption(able: Capabilities) -> str:
    if not able.max_file_out:
        return "none"
    if not able.caption_limit:
        return "a message of its own"
    without = f"; none with {', '.join(f'`{kind}`' for kind in able.no_caption)}" if able.no_caption else ""
    return f"{_length(able.caption_limit, able)}{without}"


def _repeats(able: Capabilities) -> str:
    known = {
        "key": f"the platform knows it by its key, for {_seconds(able.key_window_s)}; later: ",
        "lookup": "it is looked up; if that fails: ",
        "none": "",
    }
    return f"{known[able.idempotency]}{_UNCERTAIN[able.on_uncertain]}"


def _files_out(able: Capabilities) -> str:
    many = "one" if able.files_per_part == 1 else str(able.files_per_part)
    return f"{_size(able.max_file_out)}, {many} in a message" if able.max_file_out else "none"


def _rates(able: Capabilities) -> str:
    account = f"{1 / able.per_account_s:.0f} messages a second" if able.per_account_s else ""
    pause = "a second" if able.per_conversation_s == 1.0 else f"in {_seconds(able.per_conversation_s)}"
    conversation = f"one {pause} in a conversation" if able.per_conversation_s else ""
    group = f"{able.per_group[0]} in {_seconds(able.per_group[1])} in a group" if able.per_group else ""
    brake = f"{able.brake[0]} to one sender in {_seconds(able.brake[1])}" if able.brake else ""
    return "; ".join(filter(None, (account, conversation, group, brake))) or "as the platform says"


def _seconds(seconds: float) -> str:
    """In the largest unit that gives two or more, and hours from the first."""
    units = (("days", 86_400.0, 2), ("h", 3600.0, 1), ("min", 60.0, 2), ("s", 1.0, 0))
    name, size = next((name, size) for name, size, least in units if seconds >= least * size)
    return f"{seconds / size:g} {name}"


def _stale(able: Capabilities) -> str:
    direct, group = map(_seconds, able.stale_s)
    return direct if direct == group else f"{direct}, in groups {group}"


def _of(cell: Callable[[Capabilities], str]) -> Callable[[Manifest], str]:
    return lambda manifest: cell(manifest.capabilities)


_ROWS: Final[Mapping[str, Callable[[Manifest], str]]] = {
    "text of one message": _of(lambda able: _length(able.text_limit, able)),
    "marks of a reply": _of(lambda able: _MARKUP[able.markup]),
    "text with a file": _of(_caption),
    "files of a reply, at most": _of(_files_out),
    "files of a message, at most": _of(lambda able: _size(able.max_file_in) if able.max_file_in else "none"),
    "recordings that are [transcribed](../voice.md)": lambda manifest: _VOICE[manifest.name],
    "conversations of their own": lambda manifest: _THREADS[manifest.name],
    "[buttons](../api.md#buttons)": _of(
        lambda able: f"{able.buttons}, with {able.label_limit} characters" if able.buttons else "none"
    ),
    "typing is shown": _of(lambda able: "yes" if able.typing_s else "no"),
    "drafts are shown": _of(lambda able: "yes" if able.draft_s else "no"),
    "messages missed during an outage": _of(lambda able: _HISTORY[able.history]),
    "a message that may have been sent": _of(_repeats),
    "rates": _of(_rates),
    "too old to be answered": _of(_stale),
    "[strangers](../who-may-write.md) are answered": lambda manifest: _STRANGERS[manifest.strangers],
}


if __name__ == "__main__":
    PAGE.write_text(page(manifests()), encoding="utf-8")
