"""Two rule engines from PyPI with the same rules as our index, used as their manuals say.

Called by `bench/route.py`. In: rules, in the order of trying; out: a function from the facts of a message to the name
of the first rule that matches. The engines come with the extra `bench`; nothing else needs them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any, Final, Literal

from msgspec import Struct

from switchboard.core.routing.facts import alternatives
from switchboard.domain.routing import Rule

PeerName = Literal["rule-engine", "zen-engine"]
First = Callable[[Mapping[str, str]], str | None]

_FACTS: Final = ("channel", "telegram_user_id", "telegram_chat_id", "email_sender", "email_auth", "sender")
"""What the benchmark's rules match on: the columns of the decision table."""


class Peer(Struct, frozen=True):
    """How to use an engine, and how many rules are worth the wait."""

    module: str
    use: Callable[[Any, Sequence[Rule]], First]
    most: int
    beyond: str
    """Why it is not measured with more rules than `most`."""


def loader(name: PeerName) -> Callable[[Sequence[Rule]], First]:
    """A function that loads rules into the engine, imported here. Raises ModuleNotFoundError if it is not installed."""
    return partial(PEERS[name].use, import_module(PEERS[name].module))


def _facts_of_rule(rule: Rule) -> Iterator[tuple[str, str]]:
    """Every fact that must be equal, including the channel."""
    if rule.channel != "*":
        yield "channel", rule.channel
    for filters in alternatives(rule.filters):  # the benchmark has one value per filter
        yield from filters.items()


def _rule_engine(module: Any, rules: Sequence[Rule]) -> First:
    """One compiled expression per rule, tried one after the other; the engine has no rule sets."""
    context = module.Context(default_value=None, resolver=module.resolve_item)
    expressions = (
        " and ".join(f"{key} == {json.dumps(value)}" for key, value in _facts_of_rule(rule)) for rule in rules
    )
    compiled = [module.Rule(expression, context=context) for expression in expressions]
    named = [(one.matches, rule.name) for one, rule in zip(compiled, rules, strict=True)]
    return lambda facts: next((name for matches, name in named if matches(facts)), None)


def _zen_engine(module: Any, rules: Sequence[Rule]) -> First:
    """One decision table, whose first matching row counts."""
    engine = module.ZenEngine()
    decision = engine.create_decision(json.dumps(_table(rules)))

    def first(facts: Mapping[str, str]) -> str | None:
        name = decision.evaluate(facts)["result"].get("rule")
        return None if name is None else str(name)

    return first


def _table(rules: Sequence[Rule]) -> Mapping[str, object]:
    """The engine's form of a graph: in, table, out."""
    table = {
        "hitPolicy": "first",
        "inputs": [{"id": key, "name": key, "field": key} for key in _FACTS],
        "outputs": [{"id": "rule", "name": "rule", "field": "rule"}],
        "rules": [_row(rule) for rule in rules],
    }
    place = {"position": {"x": 0, "y": 0}}
    nodes = [
        {"id": "in", "name": "in", "type": "inputNode", **place},
        {"id": "table", "name": "table", "type": "decisionTableNode", "content": table, **place},
        {"id": "out", "name": "out", "type": "outputNode", **place},
    ]
    ways = (("in", "table"), ("table", "out"))
    edges = [{"id": f"{a}-{b}", "type": "edge", "sourceId": a, "targetId": b} for a, b in ways]
    return {"contentType": "application/vnd.gorules.decision", "nodes": nodes, "edges": edges}


def _row(rule: Rule) -> Mapping[str, str]:
    """An empty cell matches anything."""
    wanted = {key: json.dumps(value) for key, value in _facts_of_rule(rule)}
    return {"_id": str(rule.rule_id), "rule": json.dumps(rule.name), **dict.fromkeys(_FACTS, ""), **wanted}


PEERS: Final[Mapping[PeerName, Peer]] = {
    "rule-engine": Peer("rule_engine", _rule_engine, 100_000, "it compiles and tries each rule by itself"),
    "zen-engine": Peer("zen", _zen_engine, 1_000_000, "it looks at every row of its table"),
}
