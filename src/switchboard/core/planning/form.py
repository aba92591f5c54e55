"""The form that a model fills in to plan, as a JSON Schema from which servers make a grammar. Pure.

It is smaller than a `Pipeline`: steps have no ids (their position gives s1, s2, …) and no `max_chars`, and `needs` are
numbers. Servers check no order, no cycles and no duplicates; `check.py` does. Next: `read.py`, which reads the form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from switchboard.core.planning.menu import SPECIALIST_TASKS, Menu
from switchboard.core.planning.places import choices, place_of
from switchboard.core.turns.asking import ASK_USER
from switchboard.core.turns.frozen import FrozenTool
from switchboard.domain.json_values import JsonObject
from switchboard.domain.llm import OfferedTool
from switchboard.domain.planning import SPECIALISTS, PipelineAction, RouteAction

ROUTE_DECISION: Final = "route_decision"
REVIEW: Final = "review"
MOST_STEPS: Final = 8
"""Maximum number of steps in one form."""
MOST_TOOLS: Final = 12
NOTE: Final = "note"
"""The argument of a tool that takes none: some servers cannot make a grammar from an empty object."""
_SHORTER: Final = ((12, 20), (8, 10), (5, 5), (3, 3), (1, 1), (0, 0))
"""Ever smaller maximum numbers of tools, and of URLs and paths."""
_KEPT: Final = ("type", "enum", "const")
_TASK: Final[JsonObject] = {"type": "object", "properties": {"task": {"type": "string"}}, "required": ["task"]}
_DEEPEST: Final = 8


def route_tool(menu: Menu) -> OfferedTool:
    """The tool `route_decision`, with which the router chooses what to do."""
    properties: JsonObject = {
        "action": {"type": "string", "enum": list(decision_actions(menu))},
        "steps": _steps(menu, {"type": "integer", "enum": list(range(1, MOST_STEPS + 1))}),
        "target": {
            "type": "string",
            "enum": _different(*SPECIALIST_TASKS, *menu.subagents, ""),
        },
        "args": {"type": "object"},
        "confidence": {"type": "number"},
    }
    schema = {"type": "object", "properties": properties, "required": ["action", "confidence"]}
    return OfferedTool(ROUTE_DECISION, "Say what is to be done with the message. Call it once.", schema, once=True)


def review_tool(menu: Menu) -> OfferedTool:
    """The tool `review`, with which the router judges the results so far."""
    verdicts = {"type": "string", "enum": ["complete", "extend", "give_up"]}
    properties = {"verdict": verdicts, "steps": _steps(menu, {"type": "integer"})}
    schema = {"type": "object", "properties": properties, "required": ["verdict"]}
    return OfferedTool(REVIEW, "Say whether the results answer the message. Call it once.", schema, once=True)


def decision_actions(menu: Menu) -> tuple[RouteAction, ...]:
    """What a router is offered to decide on.

    Not what a pipeline of one step says as well, where small models choose it wrongly: a single tool for what takes
    several, and a writer alone, who sees no pages, for a message with URLs.
    """
    writer: tuple[RouteAction, ...] = () if menu.urls else ("specialist",)
    others: tuple[RouteAction, ...] = ("subagent",) if menu.subagents else ()
    return ("respond", "pipeline", *writer, "ask_user", *others)


def step_actions(menu: Menu) -> tuple[PipelineAction, ...]:
    """The actions that a step may have with this menu."""
    tools: tuple[PipelineAction, ...] = ("tool",) if offered_tools(menu) else ()
    loops: tuple[PipelineAction, ...] = ("specialist_with_tools",) if menu.tools else ()
    return (*tools, "specialist", *loops, "router_review")


def _different(*names: str) -> list[str]:
    """Each name once, as an enum requires: a team may have the same name as a tool."""
    return list(dict.fromkeys(names))


def _steps(menu: Menu, number: JsonObject) -> JsonObject:
    """Steps whose `needs` are such numbers."""
    kinds = [_step(("tool",), (tool.name,), schema) for tool, schema in offered_tools(menu)]
    writers = [action for action in step_actions(menu) if action in SPECIALISTS]
    kinds.append(_step(writers, SPECIALIST_TASKS, _TASK))
    kinds.append(_step(("router_review",), ("review",), {"type": "object", "properties": {NOTE: {"type": "string"}}}))
    kinds = [
        {**kind, "properties": {**kind["properties"], "needs": {"type": "array", "items": number}}} for kind in kinds
    ]
    return {"type": "array", "maxItems": MOST_STEPS, "items": {"anyOf": kinds}}


def _step(actions: Sequence[str], targets: Sequence[str], args: JsonObject) -> JsonObject:
    properties = {
        "action": {"type": "string", "enum": list(actions)},
        "target": {"type": "string", "enum": list(targets)},
        "args": args,
        "needs": {"type": "array", "items": {"type": "integer"}},
    }
    return {"type": "object", "properties": properties, "required": ["action", "target", "args", "needs"]}


def offered_tools(menu: Menu) -> list[tuple[FrozenTool, JsonObject]]:
    """The tools that a model sees, and their reduced schemas: at most 12 of those that can be used."""
    return usable(menu)[:MOST_TOOLS]


def usable(menu: Menu) -> list[tuple[FrozenTool, JsonObject]]:
    """The tools that can be used at all: without a URL there is nothing to fetch. The most relevant come first."""
    steps = (tool for tool in menu.tools if tool.name != ASK_USER)  # asking is a decision, not a step
    tools = sorted(steps, key=lambda tool: not _is_about(tool, menu))
    reduced = ((tool, reduced_schema(tool.parameters, menu)) for tool in tools)
    return [(tool, schema) for tool, schema in reduced if schema is not None]


def shorter_menus(menu: Menu) -> Iterator[Menu]:
    """The menu, then ever less of it, for models with a small context. The most relevant entries stay longest."""
    yield menu
    tools = [tool for tool, _ in usable(menu)]
    for most, places in _SHORTER:
        yield replace(
            menu,
            tools=tuple(tools[:most]),
            urls=menu.all_urls[:places],
            more_urls=(),
            paths=menu.all_paths[:places],
            more_paths=(),
        )


def _is_about(tool: FrozenTool, menu: Menu) -> bool:
    """Whether a tool takes a URL or a path, and the message has one."""
    places = {place_of(str(name)) for name in tool.parameters.get("properties", ())}
    return bool(("url" in places and menu.urls) or ("path" in places and menu.paths))


def reduced_schema(schema: Mapping[str, object], menu: Menu) -> JsonObject | None:
    """The schema of a tool's arguments in `type`, `properties`, `required`, `enum`, `const` and `items` alone.

    URLs and paths become a choice among those of the menu; None: one is required, but the menu has none.
    """
    found = _object(schema, menu, 0)
    if found is not None and not found["properties"]:
        found["properties"] = {NOTE: {"type": "string"}}
    return found


def _required_names(required: object) -> list[str]:
    return [name for name in required if isinstance(name, str)] if isinstance(required, list | tuple) else []


def _object(schema: Mapping[str, object], menu: Menu, depth: int) -> JsonObject | None:
    said, needed = schema.get("properties"), _required_names(schema.get("required"))
    properties: JsonObject = {}
    for name, inner in said.items() if isinstance(said, Mapping) else ():
        reduced = _property(str(name), inner if isinstance(inner, Mapping) else {}, menu, depth)
        if reduced is not None:
            properties[str(name)] = reduced
        elif name in needed:
            return None
    found: JsonObject = {"type": "object", "properties": properties}
    return found | ({"required": kept} if (kept := [name for name in needed if name in properties]) else {})


def _property(name: str, schema: Mapping[str, object], menu: Menu, depth: int) -> JsonObject | None:
    """The schema of one argument; None: nothing can be chosen for it."""
    schema = _one_of(schema)
    kind = _type(schema)
    if depth >= _DEEPEST:
        return None
    if kind == "object":
        return _object(schema, menu, depth + 1)
    if kind == "array":
        items = schema.get("items")
        inner = _property(name, items if isinstance(items, Mapping) else {"type": "string"}, menu, depth + 1)
        return None if inner is None else {"type": "array", "items": inner}
    place = place_of(name) if kind in {"string", None} else None
    if place is None:
        return _scalar(schema, kind)
    given = choices(place, menu)
    return {"type": "string", "enum": list(given)} if given else None


def _scalar(schema: Mapping[str, object], kind: str | None) -> JsonObject:
    kept = {key: schema[key] for key in _KEPT if key in schema}
    return kept | ({"type": kind} if kind else {} if "enum" in kept or "const" in kept else {"type": "string"})


def _one_of(schema: Mapping[str, object]) -> Mapping[str, object]:
    """The first of several alternatives that is not null."""
    several = next((one for key in ("anyOf", "oneOf", "allOf") if isinstance(one := schema.get(key), list)), [])
    forms = [one for one in several if isinstance(one, Mapping) and one.get("type") != "null"]
    return {**schema, **forms[0]} if forms else schema


def _type(schema: Mapping[str, object]) -> str | None:
    said = schema.get("type")
    names = said if isinstance(said, list) else [said]
    return next((name for name in names if isinstance(name, str) and name != "null"), None)
