"""The envelope of a mail in which something is unusual or wrong: strings are stripped, or it is refused.

Called by `core/mail/envelope.py` with envelopes that `core/envelope/fast.py` does not accept. In: an unchecked
envelope; out: a valid one, or InvalidInput. Imported late because it needs pydantic: hardly any mail gets here, and a
process that reads mails starts in half the time without it. Next: `core/envelope/strict.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic import ValidationError

from switchboard.core.envelope.strict import strict
from switchboard.core.mail.refusals import unreadable
from switchboard.core.text.problems import after, path_of, wrong
from switchboard.domain.envelope import Envelope
from switchboard.domain.errors import InvalidInput

_PARAMETERS: Final[Mapping[tuple[int | str, ...], str]] = {
    ("source", "endpoint_identity"): "endpoint",
    ("source", "provider"): "provider",
}
"""Values that do not come from the mail, under the names they have at every interface."""


def strictly_checked(envelope: Envelope) -> Envelope:
    """The same with its strings stripped. Raises InvalidInput."""
    try:
        return strict(Envelope, envelope)
    except ValidationError as error:
        raise _invalid_input_of(error) from None


def _invalid_input_of(error: ValidationError) -> InvalidInput:
    """A wrong account is the caller's fault, anything else is the mail's."""
    first = error.errors(include_url=False)[0]
    name = _PARAMETERS.get(first["loc"])
    if name is None:
        return unreadable(after(path_of(first["loc"]), wrong(first)))
    return InvalidInput(f"the {name} of a mail {wrong(first)}", code="invalid_value", field=name)
