"""Making outside text storable in PostgreSQL: without NUL and lone surrogates, alone or inside JSON.

Called by `store/`, by `journey/turn.py` and by engines with text from programs, models and the network. Next:
`store/database.py`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

_NUL: Final = rb"\u0000"


def storable_text(text: str) -> str:
    """Without NUL; a lone surrogate becomes a question mark."""
    if text.isascii() and "\x00" not in text:
        return text
    return text.replace("\x00", "").encode("utf-8", "replace").decode("utf-8")


def storable_or_none(text: str | None) -> str | None:
    """The same for a text that may be missing."""
    return None if text is None else storable_text(text)


def to_storable_json(value: object) -> str:
    """JSON text in which every text, names included, can be stored."""
    return _encode_json(value).decode()


def storable_json(value: object) -> Any:
    """`value` as a JSON column would return it: plain JSON, every text in it storable."""
    return msgspec.json.decode(_encode_json(value))


def _encode_json(value: object) -> bytes:
    try:
        encoded = msgspec.json.encode(value)
    except UnicodeEncodeError:  # a lone surrogate
        encoded = _NUL
    if _NUL in encoded:
        encoded = msgspec.json.encode(_clean(msgspec.to_builtins(value, str_keys=True)))
    return encoded


def _clean(value: object) -> object:
    if isinstance(value, str):
        return storable_text(value)
    if isinstance(value, dict):
        return {storable_text(name): _clean(child) for name, child in value.items()}
    return [_clean(child) for child in value] if isinstance(value, list | tuple) else value
