"""The replies of a scripted model: in order, by rule, or by a function. Values, and their JSON form.

Tests and `__main__.py` make a `Script` (or pass a list or a function); `endpoints.py` asks a `Player` for the reply to
each request. Next: `faults.py` (deliberate faults), `obey.py` (the model that obeys whatever it reads).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from switchboard.domain.errors import ConfigurationError
from switchboard.domain.json_values import JsonMapping
from switchboard.testing.scripted_llm.faults import Fault
from switchboard.testing.scripted_llm.obey import commands
from switchboard.testing.scripted_llm.request import EMBEDDINGS, Dialect, Request

Finish = Literal["stop", "length", "filter"]


class Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool call. If `arguments` is a string, it is sent unchanged, so it may be broken JSON.

    `name` may be the bare name of a tool that was offered under a longer name (`route_to_butler` for
    `mcp__switchboard__route_to_butler`), unless it is `exact`. A name that fits no offered tool is sent unchanged.
    """

    name: str
    arguments: JsonMapping | str = {}
    exact: bool = False


class Usage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tokens, as the provider reports them.

    `cached_tokens` (read from its cache) and `written_tokens` (written into it) are parts of `input_tokens`.
    """

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    written_tokens: int = 0


class Reply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One answer of the model: thinking, then text, then tool calls.

    Without `usage`, it is estimated from the lengths (4 characters are a token). Without `finish`, the fitting reason
    is used: tool call or end. The answer waits for the gate named by `gate`. `fault` spoils the reply.
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
    """The requests that a rule matches; omitted fields match anything. `prompt` and `system` are parts of the text.

    `tool` is the (bare) name of an offered tool; `results`: whether the request contains results of tool calls.
    """

    dialect: Dialect | None = None
    model: str | None = None
    prompt: str | None = None
    system: str | None = None
    tool: str | None = None
    results: bool | None = None

    def matches(self, request: Request) -> bool:
        """Whether the request matches all given fields."""
        return (
            self.dialect in {None, request.dialect}
            and self.model in {None, request.model}
            and (self.prompt is None or self.prompt in request.prompt)
            and (self.system is None or self.system in request.system)
            and (self.tool is None or request.offered(self.tool) is not None)
            and self.results in {None, bool(request.results)}
        )


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Replies for matching requests, in order. A rule ends with its last reply; `again` repeats that forever."""

    when: When
    replies: tuple[Reply | Obey, ...]
    again: bool = False


class Script(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first matching rule with a reply left; otherwise the next of `replies`; otherwise `otherwise`.

    Of embeddings only rules and functions are asked; without one, vectors are the reply.
    `models` are the entries of model lists. `"obey"` instead of a reply: do what the prompt says (see `obey.py`).
    """

    replies: tuple[Reply | Obey, ...] = ()
    rules: tuple[Rule, ...] = ()
    otherwise: Reply | Obey | None = None
    models: tuple[str, ...] = ("scripted-1",)


Brain = Callable[[Request], Reply]
Scripted = Script | Sequence[Reply] | Brain
"""The types of scripts that a `ScriptedLlm` accepts."""


def read_script(data: object) -> Script:
    """A script from its JSON form: `{"replies": […], "rules": […], …}` or only the list of replies.

    Raises ConfigurationError that says where the error is.
    """
    try:
        return msgspec.convert({"replies": data} if isinstance(data, list) else data, Script)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"this is not a script: {error}", code="invalid_script") from error


def obey(request: Request) -> Reply:
    """Make the calls that the prompt demands, whoever wrote it. After their results, only report."""
    if request.results:
        return Reply(text="Done as told.")
    calls = tuple(Call(name, arguments) for name, arguments in commands(request.prompt))
    return Reply(calls=calls) if calls else Reply(text="Nobody told me to call anything.")


class Player:
    """Goes through a script, one reply per request."""

    def __init__(self, scripted: Scripted) -> None:
        self._brain = None if isinstance(scripted, (Script, Sequence)) else scripted
        self.script = scripted if isinstance(scripted, Script) else Script(_scripted_replies(scripted))
        self._used = 0
        self._used_by_rule = [0] * len(self.script.rules)

    @property
    def left(self) -> int:
        """How many replies of the list have not been used yet."""
        return len(self.script.replies) - self._used

    def reply(self, request: Request) -> Reply | None:
        """The reply to this request; None if the script has none left."""
        if self._brain is not None:
            return self._brain(request)
        found = self._by_rule(request)
        if found is None and request.dialect == EMBEDDINGS:
            return Reply()
        found = found or self._next() or self.script.otherwise
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


def _scripted_replies(scripted: Sequence[Reply] | Brain) -> tuple[Reply, ...]:
    return tuple(scripted) if isinstance(scripted, Sequence) else ()
