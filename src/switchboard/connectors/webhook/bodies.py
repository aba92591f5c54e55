"""The body of a webhook as a JSON value: JSON itself, or a form. Pure; linear in the size of the body.

`manifest.py` calls `read_body` for what was verified. In: what was posted; out: the value that templates see, or
InvalidInput. Next: `mapping.py`.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qsl

import msgspec

from switchboard.core.text.json_size import check_containers
from switchboard.core.text.lenient import clean
from switchboard.domain.errors import InvalidInput
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import Posted

_FORM: Final = "application/x-www-form-urlencoded"
_MOST_FIELDS: Final = 1000
_CHARSET: Final = re.compile(r"charset\s*=\s*\"?([\w.:-]{1,40})", re.ASCII | re.IGNORECASE)


def read_body(posted: Posted) -> object:
    """The JSON; of a form the JSON in its field `payload`, else an object of its fields. Raises InvalidInput."""
    kind = _media_type_of(posted)
    starts_as_json = posted.body.lstrip()[:1] in (b"{", b"[")  # curl -d calls JSON a form
    if kind == _FORM and not starts_as_json:
        return _parse_form(posted.body, _charset_of(posted))
    try:
        return _parse_json(posted.body)
    except (ValueError, RecursionError) as error:  # msgspec's own errors are ValueErrors
        said = f", and Content-Type says {kind[:100]!r}" if kind and not kind.endswith("json") else ""
        raise InvalidInput(
            f"the body is not JSON{said}: {error}; send application/json or {_FORM}", code="invalid_json"
        ) from None


def _media_type_of(posted: Posted) -> str:
    return posted.headers.get("content-type", "").partition(";")[0].strip().lower()


def _charset_of(posted: Posted) -> str:
    found = _CHARSET.search(posted.headers.get("content-type", ""))
    return found[1] if found else "utf-8"


def _parse_form(body: bytes, charset: str) -> object:
    try:
        said = body.decode(charset)
        pairs = parse_qsl(said, True, encoding=charset, errors="strict", max_num_fields=_MOST_FIELDS)
    except (ValueError, LookupError) as error:
        raise InvalidInput(f"the body is not a form: {error}", code="invalid_value") from None
    fields: JsonObject = {}
    for name, value in pairs:
        fields.setdefault(name.replace("\0", ""), value.replace("\0", ""))  # of several, the first counts
    if not fields:
        raise InvalidInput("the body is a form without fields", code="invalid_value")
    payload = fields.get("payload")
    if not isinstance(payload, str) or payload.lstrip()[:1] not in ("{", "["):
        return fields
    try:
        return _parse_json(payload.encode())
    except (ValueError, RecursionError):
        return fields  # a field that only begins like JSON


def _parse_json(body: bytes) -> object:
    """Parse JSON so that its strings can be stored: NUL is removed, and texts without NUL are not scanned."""
    check_containers(body)
    value: object = msgspec.json.decode(body)
    return clean(value) if b"\\u0000" in body else value
