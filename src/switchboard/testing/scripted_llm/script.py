"""What a scripted model says: replies in order, by rule, or by a function. Values, and their JSON form.

Tests and `__main__.py` make a `Script` (or hand over a list or a function); `endpoints.py` asks a `Player` for the
reply to each request. Next: `faults.py` (what can go wrong on purpose), `obey.py` (the model that obeys whatever it
reads).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from switchboard.domain.errors import ConfigurationError
from switchboard.domain.json_values import JsonMapping
from switchboard.testing.scripted_llm.faults import Fault
from switchboard.testing.scripted_llm.obey import commands
from switchboard.testing.scripted_llm.request import Dialect, Request

Finish = Literal["stop", "length", "filter"]


class Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool call. `arguments` as a string is sent as it is, so that it may be broken JSON.

    `name` may be the bare name of a tool that was offered under a longer one (`route_to_butler` for
    `mcp__switchboard__route_to_butler`), unless it is `exact`. A name that fits no offered tool is sent as it is.
    """

    name: str
    arguments: JsonMapping | str = {}
    exact: bool = False


class Usage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tokens, as the provider reports them.

    `cached_tokens`, read from its cache, and `written_tokens`, written into it, are parts of `input_tokens`.
    """

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    written_tokens: int = 0


class Reply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One answer of the model: thinking, then text, then tool calls.

    Without `usage` a figure is made from the lengths (4 characters are a token). Without `finish` it is what fits: the
    tool call or the end. `gate` names an event that is waited for before anything is answered. `fault` spoils it.
    """

    text: str = ""
    calls: tuple[Call, ...] = ()
    thinking: str = ""
    usage: Usage | None = None
    finish: Finish | None = None
    gate: str = ""
    fault: Fault | None = None


Obey = Literal["obey"]


class When(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which requests a rule is for; what is left out does not matter. `prompt` and `system` are parts of the text.

    `tool` is the (bare) name of an offered tool; `results`: does the request bring results of tool calls?
    """

    dialect: Dialect | None = None
    model: str | None = None
    prompt: str | None = None
    system: str | None = None
    tool: str | None = None
    results: bool | None = None

    def matches(self, request: Request) -> bool:
        """Whether everything that is asked for holds."""
        return (
            self.dialect in {None, request.dialect}
            and self.model in {None, request.model}
            and (self.prompt is None or self.prompt in request.prompt)
            and (self.system is None or self.system in request.system)
            and (self.tool is None or request.offered(self.tool) is not None)
            and self.results in {None, bool(request.results)}
        )


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Replies for the requests that match, in order. Used up, the rule is over; `again` repeats the last forever."""

    when: When
    replies: tuple[Reply | Obey, ...]
    again: bool = False


class Script(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first rule that matches and has a reply left; else the next of `replies`; else `otherwise`.

    `models` is what the lists of models say. `"obey"` in place of a reply: do what the prompt says (see `obey.py`).
    """

    replies: tuple[Reply | Obey, ...] = ()
    rules: tuple[Rule, ...] = ()
    otherwise: Reply | Obey | None = None
    models: tuple[str, ...] = ("scripted-1",)


Brain = Callable[[Request], Reply]
Scripted = Script | Sequence[Reply] | Brain
"""What can be given to a `ScriptedLlm`."""


def read_script(data: object) -> Script:
    """A script from its JSON form: `{"replies": […], "rules": […], …}` or only the list of replies.

    Raises ConfigurationError that names the place of what is wrong.
    """
    try:
        return msgspec.convert({"replies": data} if isinstance(data, list) else data, Script)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"this is not a script: {error}", code="invalid_script") from error


def obey(request: Request) -> Reply:
    """Call whatever the prompt says, regardless of its author. After the results of its calls it only reports."""
    if request.results:
        return Reply(text="Done as told.")
    calls = tuple(Call(name, arguments) for name, arguments in commands(request.prompt))
    return Reply(calls=calls) if calls else Reply(text="Nobody told me to call anything.")


class Player:
    """Goes through a script, one reply per request."""

    def __init__(self, scripted: Scripted) -> None:
        self._brain = None if isinstance(scripted, (Script, Sequence)) else scripted
        self.script = scripted if isinstance(scripted, Script) else Script(_listed(scripted))
        self._used = 0
        self._used_by_rule = [0] * len(self.script.rules)

    @property
    def left(self) -> int:
        """How many of the replies in order have not been given yet."""
        return len(self.script.replies) - self._used

    def reply(self, request: Request) -> Reply | None:
        """The reply to this request; None when the script has none left."""
        if self._brain is not None:
            return self._brain(request)
        found = self._by_rule(request) or self._next() or self.script.otherwise
        return obey(request) if found == "obey" else found

    def _by_rule(self, request: Request) -> Reply | Obey | None:
        for number, rule in enumerate(self.script.rules):
            used = self._used_by_rule[number]
            if rule.when.matches(request) and (used < len(rule.replies) or (rule.again and used)):
                self._used_by_rule[number] += 1
                return rule.replies[min(used, len(rule.replies) - 1)]
        return None

    def _next(self) -> Reply | Obey | None:
        if not self.left:
            return None
        self._used += 1
        return self.script.replies[self._used - 1]


def _listed(scripted: Sequence[Reply] | Brain) -> tuple[Reply, ...]:
    return tuple(scripted) if isinstance(scripted, Sequence) else ()
