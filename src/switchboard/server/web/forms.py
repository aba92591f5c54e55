"""What is entered into forms, as use cases take it, and a form that is shown again with what was wrong.

Pages and forms of `pages/` call it, and `site.py` where a form is refused; `templates/forms.html` draws it. In: fields;
out: values, or an InvalidInput that names the field. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from msgspec import Struct

from switchboard.domain.errors import InvalidInput, SwitchboardError
from switchboard.domain.routing import SystemId, Target, TeamId
from switchboard.journey.rulebook import Rules
from switchboard.server.web.visit import LARGEST

_Choice = TypeVar("_Choice", bound=str)
Fields = Mapping[str, str]
"""What was entered into a form."""

SECRET_FIELDS: Final = "secret."  # noqa: S105  how their names begin
TOKEN_FIELD: Final = "operator_token"  # noqa: S105  the name of a field
_LONGEST: Final = 512
_OFFERED: Final = 100
"""Destinations that can be picked from a list; where there are more, a name is entered."""


class Entered(Struct, frozen=True):
    """What was entered into a form that was refused, and why; empty for a form that is shown for the first time."""

    fields: Fields = {}
    error: SwitchboardError | None = None

    @property
    def status(self) -> int:
        """That of the answer."""
        return 200 if self.error is None else self.error.status

    @property
    def sentence(self) -> str:
        """Why it was refused."""
        told = "" if self.error is None else self.error.message
        return f"{told[:1].upper()}{told[1:]}"

    def value(self, name: str, otherwise: str = "") -> str:
        """What was entered there."""
        return self.fields.get(name, otherwise)

    def is_wrong(self, name: str) -> bool:
        """Whether this field was refused."""
        return self.error is not None and self.error.field == name


NOTHING_ENTERED: Final = Entered()


def keep_entered(fields: Fields, error: SwitchboardError) -> Entered:
    """What a refused form still has when it is shown again: no secret, also where one is in another field."""
    hidden = {value.strip() for name, value in fields.items() if _is_secret(name) and value.strip()}
    shown = {name: value for name, value in fields.items() if not _is_secret(name)}
    return Entered({name: value for name, value in shown.items() if not any(one in value for one in hidden)}, error)


def _is_secret(name: str) -> bool:
    return name == TOKEN_FIELD or name.startswith(SECRET_FIELDS)


class Destinations(Struct, frozen=True):
    """Where a message can be sent to. `many`: too many for a list."""

    butlers: list[str]
    teams: list[str]

    @property
    def many(self) -> bool:
        """Whether a name has to be entered."""
        return len(self.butlers) + len(self.teams) > _OFFERED


def receivers_of(rules: Rules) -> Destinations:
    """The butlers and teams that messages can reach now."""
    butlers = sorted(one.system_id for one in rules.members.values() if rules.index.butler(one.system_id) is not None)
    teams = sorted(team.team_id for team in rules.teams if rules.index.reaches(team.team_id))
    return Destinations(list(butlers), list(teams))


def line_from(fields: Fields, name: str, what: str) -> str:
    """A line that must be there. Raises InvalidInput."""
    text = " ".join(fields.get(name, "").split())
    if not text:
        raise InvalidInput(f"{what} is missing", field=name)
    if len(text) > _LONGEST or not text.isprintable():
        raise InvalidInput(f"{what} may have {_LONGEST} characters, all of which can be seen", field=name)
    return text


def reason_from(fields: Fields) -> str:
    """Why, for the record. Raises InvalidInput."""
    return line_from(fields, "reason", "the reason")


def choice_from(entered: str, choices: Sequence[_Choice], name: str) -> _Choice:
    """The one of these that was entered. Raises InvalidInput."""
    if (found := next((one for one in choices if one == entered), None)) is not None:
        return found
    raise InvalidInput(f"{entered[:40]!r} cannot be chosen here; there are: {', '.join(choices)}", field=name)


def target_from(fields: Fields, name: str = "to") -> Target | None:
    """A butler (its name has a slash) or a team; None if the rules are to decide."""
    text = fields.get(name, "").strip()
    if not text:
        return None
    return Target(system_id=SystemId(text)) if "/" in text else Target(team_id=TeamId(text))


def number_from(fields: Fields, name: str, what: str, otherwise: int) -> int:
    """A whole number; `otherwise` where nothing was entered. Raises InvalidInput."""
    text = fields.get(name, "").strip()
    try:
        number = int(text) if text else otherwise
    except ValueError:
        raise InvalidInput(f"{what} is a whole number", field=name) from None
    if abs(number) > LARGEST:
        raise InvalidInput(f"{what} is a whole number, and not larger than {LARGEST:,}", field=name)
    return number
