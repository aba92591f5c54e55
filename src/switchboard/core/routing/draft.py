"""Reading what people and agents write: rules and their parts in decoded JSON or YAML.

Called by everything that accepts rules: team files, rule files, SOPs, route tests, the API. In: an object; out: a
`RuleDraft` or a plain value; invalid input is refused with its path and an explanation. There is no other way to read
a rule. Next: `core/routing/check.py`, which says whether the rule makes sense in the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from msgspec import Struct
from msgspec.structs import fields, replace

from switchboard.core.text.words import near, or_list
from switchboard.domain.errors import InvalidInput
from switchboard.domain.routing import Filters, FilterValue, Rule, RuleDraft, SystemId, Target, TeamId
from switchboard.ports.channel import SEVERAL
from switchboard.ports.raw import one_line

MAX_TEXT: Final = 512
"""Maximum characters of a name, id or filter value, as in an envelope."""
MAX_FILTERS: Final = 64
"""Maximum filters of a rule; no channel has as many keys."""
MAX_VALUES: Final = 1000
"""Maximum values of a filter; `check_rule` limits their combinations to as many."""

DRAFT_KEYS: Final = (*(key for key in RuleDraft.__struct_fields__ if key != "targets"), "targets")
"""The parts of a rule that its author writes."""
_SWITCHES: Final = {one.name: bool(one.default) for one in fields(RuleDraft) if one.type is bool}
"""Those that are true or false, and what they are if left out."""
_SHOWN: Final = 64
"""How much of a name chosen by a stranger is repeated in an answer."""


class Edit(Struct, frozen=True):
    """Who changes rules, and when; `new_id` makes the id of a new rule (UUIDv7: increasing ids keep the order)."""

    author: str
    now: datetime
    new_id: Callable[[], UUID]

    def stamp(self, rule: Rule) -> Rule:
        """The rule as changed by this edit."""
        return replace(rule, updated_by=self.author, updated_at=self.now)


class DocumentReader(Struct, frozen=True):
    """Reads one kind of document. `code` is that of its errors, `whole` the name of the document in messages."""

    code: str
    whole: str

    def refuse(self, path: str, message: str) -> InvalidInput:
        """The error for the value at `path`; `message` continues after the path."""
        return InvalidInput(f"{path or self.whole} {message}", code=self.code, field=path or None)

    def fields(self, value: object, path: str, known: Iterable[str]) -> Mapping[str, object]:
        """An object with no other keys than these."""
        if not isinstance(value, Mapping):
            raise self.refuse(path, "must be an object")
        known = tuple(known)
        for key in value:
            if key not in known:
                name = shorten_name(key)
                meant = near(name, known) or known
                raise self.refuse(below(path, name), f"is unknown; did you mean {or_list(meant)}?")
        return value

    def require_value(self, fields: Mapping[str, object], key: str, path: str) -> object:
        """The value of a required key."""
        if key not in fields:
            raise self.refuse(below(path, key), "is missing")
        return fields[key]

    def items(self, value: object, path: str) -> list[object]:
        """A list."""
        if not isinstance(value, list):
            raise self.refuse(path, "must be a list")
        return value

    def text(self, value: object, path: str) -> str:
        """A name or an id, without surrounding blanks."""
        text = value.strip() if isinstance(value, str) else ""
        if not text or len(text) > MAX_TEXT or not one_line(text):
            raise self.refuse(path, f"must be a string: one line of 1 to {MAX_TEXT} characters")
        return text

    def free_text(self, value: object, path: str) -> str:
        """Text of any length and any number of lines."""
        if not isinstance(value, str) or "\x00" in value:
            raise self.refuse(path, "must be a string (without NUL)")
        return value.strip()

    def truth(self, value: object, path: str) -> bool:
        """True or false, never a word."""
        if not isinstance(value, bool):
            raise self.refuse(path, "must be true or false")
        return value

    def whole_number(self, value: object, path: str, meaning: str) -> int:
        """An integer; `meaning` ends the error message."""
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.refuse(path, f"must be an integer; {meaning}")
        return value

    def draft(self, value: object, path: str) -> RuleDraft:
        """A whole rule: `name`, `channel` and `targets` are required."""
        return self.draft_in(self.fields(value, path, DRAFT_KEYS), path)

    def draft_in(self, rule: Mapping[str, object], path: str) -> RuleDraft:
        """The same from an object whose keys were checked already; other keys are ignored."""
        targets = self.require_value(rule, "targets", path)
        return RuleDraft(
            name=self.text(self.require_value(rule, "name", path), below(path, "name")),
            channel=self.text(self.require_value(rule, "channel", path), below(path, "channel")),
            targets=self.targets(targets, below(path, "targets")),
            filters=self.filters(rule.get("filters", {}), below(path, "filters")),
            priority=self.priority(rule.get("priority", 0), below(path, "priority")),
            **{key: self.truth(rule.get(key, left_out), below(path, key)) for key, left_out in _SWITCHES.items()},
        )

    def parts(self, value: object, path: str) -> Mapping[str, Any]:
        """Some parts of a rule by name, one at least; the others are to stay."""
        given = self.fields(value, path, DRAFT_KEYS)
        if not given:
            raise self.refuse(path, f"must change something: name at least one of {or_list(DRAFT_KEYS)}")
        read = self.draft_in({"name": "-", "channel": "-", "targets": [], **given}, path)
        return {key: getattr(read, key) for key in given}

    def priority(self, value: object, path: str) -> int:
        """A rule's priority; `check_rule` checks its range."""
        return self.whole_number(value, path, "higher priorities are evaluated first")

    def filters(self, value: object, path: str) -> Filters:
        """Keys and their required values: one, or a list of alternatives."""
        return {key: self.any_of(one, below(path, key)) for key, one in self.by_key(value, path).items()}

    def facts(self, value: object, path: str) -> dict[str, str]:
        """Keys and the values that a message has; a list if a fact has several."""
        filters = self.filters(value, path)
        return {key: one if isinstance(one, str) else SEVERAL.join(one) for key, one in filters.items()}

    def by_key(self, value: object, path: str) -> Mapping[str, object]:
        """An object whose keys are names of facts."""
        if not isinstance(value, Mapping):
            raise self.refuse(path, "must be an object of keys and values")
        if len(value) > MAX_FILTERS:
            raise self.refuse(path, f"must have at most {MAX_FILTERS} keys, not {len(value)}")
        # A key is checked as a text first: the search for similar names accepts any length.
        keys = [self.text(key, below(path, shorten_name(key))) for key in value]
        return dict(zip(keys, value.values(), strict=True))

    def any_of(self, value: object, path: str) -> FilterValue:
        """One value, or several, sorted."""
        if not isinstance(value, list):
            return self.fact(value, path)
        if not 0 < len(value) <= MAX_VALUES:
            raise self.refuse(path, f"must have 1 to {MAX_VALUES} values, not {len(value)}")
        values = tuple(sorted({self.fact(one, f"{path}[{at}]") for at, one in enumerate(value)}))
        return values if len(values) > 1 else values[0]

    def fact(self, value: object, path: str) -> str:
        """A text. An integer becomes its digits, because ids are often written as numbers; null is refused."""
        if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() < 64:
            return str(value)
        if not isinstance(value, str):
            raise self.refuse(path, "must be a string; put it in quotes")
        return self.text(value, path)

    def targets(self, value: object, path: str) -> tuple[Target, ...]:
        """A list of targets."""
        return tuple(self.target(one, f"{path}[{at}]") for at, one in enumerate(self.items(value, path)))

    def target(self, value: object, path: str) -> Target:
        """One system or one team."""
        form = '{"system_id": "System1/NAME"} or {"team_id": "NAME"}'
        if not isinstance(value, Mapping):
            raise self.refuse(path, f"must be an object: {form}")
        target = self.fields(value, path, ("system_id", "team_id"))
        if len(target) != 1:
            raise self.refuse(path, f"must have exactly one key: {form}")
        if "system_id" in target:
            return Target(system_id=SystemId(self.text(target["system_id"], below(path, "system_id"))))
        return Target(team_id=TeamId(self.text(target["team_id"], below(path, "team_id"))))


def below(path: str, key: str) -> str:
    """The path of a part: `rules[0].name`."""
    return f"{path}.{key}" if path else key


def shorten_name(name: object) -> str:
    """A stranger's name, shortened for repetition in an answer."""
    return str(name)[:_SHOWN]


_API: Final = DocumentReader("invalid_rule", "the rule")


def parse_draft(value: object) -> RuleDraft:
    """The rule in an object, such as the body of a request; `name`, `channel` and `targets` are required.

    Raises InvalidInput (code `invalid_rule`) at the first invalid value, with its path in `field`.
    """
    return _API.draft(value, "")


def parse_facts(value: object) -> dict[str, str]:
    """The facts of a made-up message. Raises InvalidInput as `parse_draft`."""
    return _API.facts(value, "facts")


def parse_patch(value: object) -> Mapping[str, Any]:
    """The parts of a rule that are to change: `filters` and `targets` are replaced whole. Raises as `parse_draft`."""
    return _API.parts(value, "")


def draft_of(rule: Rule) -> RuleDraft:
    """The parts that the author wrote."""
    return RuleDraft(**written_parts(rule))


def written_parts(rule: Rule | RuleDraft) -> dict[str, Any]:
    """The parts that the author wrote, by name."""
    return {name: getattr(rule, name) for name in DRAFT_KEYS}


def gist(draft: RuleDraft) -> Hashable:
    """A value that is equal for drafts that mean the same."""
    return frozenset((written_parts(draft) | {"filters": frozenset(draft.filters.items())}).items())


def with_draft(rule: Rule, draft: RuleDraft) -> Rule:
    """The same rule with new contents."""
    return replace(rule, **written_parts(draft))


def new_rule(draft: RuleDraft, team_id: TeamId, edit: Edit, source: str = "") -> Rule:
    """A rule that did not exist before this edit."""
    return Rule(
        rule_id=edit.new_id(),
        team_id=team_id,
        **written_parts(draft),
        created_at=edit.now,
        created_by=edit.author,
        updated_by=edit.author,
        updated_at=edit.now,
        source=source,
    )
