"""The envelope of a mail in which something is unusual or wrong: strings are stripped, or it is refused.

Called by `core/mail/envelope.py` with what `core/envelope/fast.py` does not accept. In: an envelope that nobody has
checked; out: one that is valid, or InvalidInput. Imported late, as it takes pydantic: hardly any mail comes here, and a
process that reads mails starts in half the time without it. Next: `core/envelope/strict.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic import ValidationError

from switchboard.core.envelope.strict import strict
from switchboard.core.mail.refusals import unreadable
from switchboard.core.problems import after, path_of, wrong
from switchboard.domain.envelope import Envelope
from switchboard.domain.errors import InvalidInput

_PARAMETERS: Final[Mapping[tuple[int | str, ...], str]] = {
    ("source", "endpoint_identity"): "endpoint",
    ("source", "provider"): "provider",
}
"""What is not in the mail, under the name it has at every interface."""


def strictly_checked(envelope: Envelope) -> Envelope:
    """The same, its strings stripped. Raises InvalidInput."""
    try:
        return strict(Envelope, envelope)
    except ValidationError as error:
        raise _explained(error) from None


def _explained(error: ValidationError) -> InvalidInput:
    """A wrong account is the caller's fault, anything else the mail's."""
    first = error.errors(include_url=False)[0]
    name = _PARAMETERS.get(first["loc"])
    if name is None:
        return unreadable(after(path_of(first["loc"]), wrong(first)))
    return InvalidInput(f"the {name} of a mail {wrong(first)}", code="invalid_value", field=name)
