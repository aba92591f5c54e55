"""The long way to an `Envelope`, or to a part of one: by pydantic, which strips strings and finds all that is wrong.

Called by `core/wire.py` with what is not plainly good, and by whoever puts a part together out of what others say:
`core/mail.py`, `journey/pipeline.py`, `app/intake.py`. Values enter; clean Structs leave, or a ValidationError.
Next: `core/identity.py`.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from switchboard.domain.envelope import Envelope
from switchboard.domain.envelope_model import model_of

_S = TypeVar("_S", bound=msgspec.Struct)


def checked(kind: type[_S], value: object) -> _S:
    """A `kind` out of a mapping, or out of one that nobody has checked. Raises pydantic.ValidationError."""
    good = model_of(kind).model_validate(value, from_attributes=isinstance(value, kind))
    return msgspec.convert(good, kind, from_attributes=True)


def checked_json(data: bytes) -> Envelope:
    """The envelope in `data`. Raises pydantic.ValidationError, also for what is no JSON."""
    return msgspec.convert(model_of(Envelope).model_validate_json(data), Envelope, from_attributes=True)
