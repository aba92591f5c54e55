"""Checks of what Discord refuses in a message, and whom a message pings. Pure. Called by `routes.py`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from switchboard.domain.json_values import JsonMapping
from switchboard.testing.discord.errors import EMPTY_MESSAGE, TOO_LARGE, FormError
from switchboard.testing.platform_server import Upload

MAX_TEXT: Final = 2000
MAX_NONCE: Final = 25
MAX_FILES: Final = 10
MAX_ROW: Final = 5
MAX_VALUE: Final = 100
MAX_LABEL: Final = 80
MAX_FILE: Final = 10 * 1024 * 1024
MAX_REQUEST: Final = 25 * 1024 * 1024
_KINDS: Final = frozenset({"users", "roles", "everyone"})
_USER: Final = re.compile(r"<@!?(\d+)>")
_ROLE: Final = re.compile(r"<@&(\d+)>")
_EVERYONE: Final = re.compile(r"@(?:everyone|here)")


def check_message(body: JsonMapping, files: Sequence[Upload]) -> None:
    """The body of a message and its files. Raises RestError.

    Discord does not say in what it counts 2000; here it is UTF-16, which nobody exceeds by counting otherwise.
    """
    content = body.get("content") or ""
    if not isinstance(content, str) or len(content.encode("utf-16-le")) // 2 > MAX_TEXT:
        raise FormError(content=f"Must be {MAX_TEXT} or fewer in length.")
    nonce = body.get("nonce")
    if nonce is not None and len(str(nonce)) > MAX_NONCE:
        raise FormError(nonce=f"Must be {MAX_NONCE} or fewer in length.")
    if len(files) > MAX_FILES:
        raise FormError(attachments=f"Must be {MAX_FILES} or fewer in length.")
    if any(len(one.data) > MAX_FILE for one in files) or sum(len(one.data) for one in files) > MAX_REQUEST:
        raise TOO_LARGE
    if not (content.strip() or files or body.get("embeds") or body.get("poll") or body.get("sticker_ids")):
        raise EMPTY_MESSAGE
    check_mentions(body.get("allowed_mentions"))
    _check_components(body.get("components"))


def _check_components(rows: object) -> None:
    """At most five rows of at most five buttons, each with a label and a value of its own. Raises RestError."""
    found = rows if isinstance(rows, list) else []
    buttons = [one for row in found for one in row.get("components", ())]
    values = [one.get("custom_id") or "" for one in buttons]
    if len(found) > MAX_ROW or any(row.get("type") != 1 or len(row["components"]) > MAX_ROW for row in found):
        raise FormError(components="Must be between 1 and 5 in length.")
    if any(not 1 <= len(one) <= MAX_VALUE for one in values) or len(set(values)) != len(values):
        raise FormError(components="Component custom id cannot be duplicated.")
    if any(not 1 <= len(one.get("label") or "") <= MAX_LABEL for one in buttons):
        raise FormError(components="Must be between 1 and 80 in length.")


def check_mentions(allowed: object) -> None:
    """`allowed_mentions`. Raises RestError."""
    if allowed is None:
        return
    if not isinstance(allowed, dict) or not set(allowed.get("parse", ())) <= _KINDS:
        raise FormError(allowed_mentions="Only users, roles and everyone can be parsed.")
    for kind in ("users", "roles"):
        if kind in allowed.get("parse", ()) and allowed.get(kind):
            raise FormError(allowed_mentions=f"parse:{kind} and {kind}: [ids] are mutually exclusive.")
        if len(allowed.get(kind, ())) > 100:
            raise FormError(allowed_mentions="Must be 100 or fewer in length.")


def pings_of(body: JsonMapping, answered: str | None) -> list[str]:
    """Who is notified by a message: users by id, roles as `&id`, and `everyone`; `answered` is whom it replies to.

    Without `allowed_mentions` it is everybody whom the text names, and whom it replies to.
    """
    content, allowed = body.get("content") or "", body.get("allowed_mentions")
    rules: Mapping[str, object] = {"parse": sorted(_KINDS), "replied_user": True} if allowed is None else allowed
    found = [one for one in _USER.findall(content) if _is_allowed(rules, "users", one)]
    found += [f"&{one}" for one in _ROLE.findall(content) if _is_allowed(rules, "roles", one)]
    found += ["everyone"] if _EVERYONE.search(content) and _is_allowed(rules, "everyone", "") else []
    found += [answered] if answered is not None and rules.get("replied_user") else []
    return list(dict.fromkeys(found))


def _is_allowed(rules: JsonMapping, kind: str, one: str) -> bool:
    return kind in rules.get("parse", ()) or one in rules.get(kind, ())
