"""Answers of small models: valid plans, and broken ones with what becomes of them. Written by hand."""

from __future__ import annotations

import json
from typing import Final

from switchboard.domain.json_values import JsonObject
from tests.unit.planning.menus import ARXIV, CRATE


def tool(target: str, args: JsonObject, *needs: int) -> JsonObject:
    return {"action": "tool", "target": target, "args": args, "needs": list(needs)}


def write(task: str, *needs: int, target: str = "synthesize", action: str = "specialist") -> JsonObject:
    return {"action": action, "target": target, "args": {"task": task}, "needs": list(needs)}


def plan(*steps: JsonObject, **more: object) -> JsonObject:
    return {"action": "pipeline", "steps": list(steps), "confidence": 0.9, **more}


FETCH_A: Final = tool("web_fetch", {"url": ARXIV})
FETCH_C: Final = tool("web_fetch", {"url": CRATE})
SEED: Final = plan(FETCH_A, FETCH_C, write("Write a research report combining 1 and 2", 1, 2))

VALID: Final[list[JsonObject]] = [
    SEED,
    plan(FETCH_A, write("Summarize it", 1)),
    plan(write("A poem about rain", target="write")),
    plan(
        FETCH_A,
        FETCH_C,
        write("Compare", 1, 2),
        {"action": "router_review", "target": "review", "args": {}, "needs": [3]},
    ),
    plan(tool("web_search", {"query": 'rlm-cli "usage" examples'}), write("Quote it", 1)),
    plan(tool("read_file", {"path": "notes/a.md", "offset": 0}), write("Was steht da? Größe in Ω", 1)),
    plan(tool("now", {"note": "the time"}), write("Say what time it is", 1, target="write")),
    plan(tool("now", {}), tool("now", {}, 1)),
    plan(write('Look into it: {"not": "json"} [1, 2]', action="specialist_with_tools")),
    plan(FETCH_A, write("First", 1), write("Second", 1), write("Both", 2, 3)),
    plan(write("Draft", target="write"), tool("send_mail", {"to": "ann", "body": "Done, it's fine"}, 1)),
    plan(tool("delete_file", {"path": "notes/a.md"})),
    plan(*[tool("web_search", {"query": f"topic {n}"}) for n in range(1, 8)], write("All", 1, 2, 3, 4, 5, 6, 7)),
    {"action": "specialist", "target": "write", "args": {"task": "A \\ backslash and a \n line"}, "confidence": 0.7},
    {"action": "tool", "target": "web_fetch", "args": {"url": CRATE}, "confidence": 1},
    {"action": "ask_user", "args": {"question": "Which of the two?"}, "confidence": 0.6},
    {"action": "respond", "confidence": 0.99},
    {"action": "subagent", "target": "System1/health", "confidence": 0.8},
    {"thought": "two pages, then a text }", "calls": [SEED]},
    {"name": "route_decision", "arguments": SEED},
]

TEXT: Final = json.dumps(SEED)
_ONE: Final = json.dumps({"action": "tool", "target": "web_fetch", "args": {"url": CRATE}, "confidence": 1})
_PY: Final = repr(SEED)

TAKEN: Final[dict[str, tuple[str, str]]] = {
    "as it stands": (TEXT, "exact"),
    "indented": (json.dumps(SEED, indent=2), "exact"),
    "blanks around it": (f"\n\n  {TEXT}  \n", "exact"),
    "a fence": (f"```json\n{TEXT}\n```", "stripped"),
    "a fence without a language": (f"```\n{TEXT}\n```\n", "stripped"),
    "a fence that was not closed": (f"```json\n{TEXT}\n", "stripped"),
    "thinking": (f"<think>Two pages, {{so two}} fetches.</think>{TEXT}", "stripped"),
    "thinking with a draft": (f"<think>\nMaybe {_ONE}? No, both.\n</think>\n\n{TEXT}", "stripped"),
    "thinking of which only the end is there": (f"So both.\n</think>\n{TEXT}", "stripped"),
    "thinking twice": (f"<think>a</think><think>b</think>{TEXT}", "stripped"),
    "thinking and a fence": (f"<thinking>x</thinking>\n```json\n{TEXT}\n```", "stripped"),
    "python": (_PY, "repaired"),
    "a comma at the end": (TEXT[:-1] + ",}", "repaired"),
    "commas at all ends": (TEXT.replace("}", ",}").replace("]", ",]"), "repaired"),
    "two commas": (TEXT.replace(", ", ",, "), "repaired"),
    "no commas": (json.dumps(SEED, separators=(" ", ": ")), "repaired"),
    "comments": (TEXT.replace('"steps"', '// two fetches\n"steps" /* here */'), "repaired"),
    "a comment of python": (TEXT.replace('"steps"', '# steps\n"steps"'), "repaired"),
    "names without quotes": (TEXT.replace('"action"', "action").replace('"needs"', "needs"), "repaired"),
    "single quotes around names": (TEXT.replace('"action"', "'action'"), "repaired"),
    "typographic quotes": (TEXT.replace('"action"', "\u201caction\u201d"), "repaired"),
    "low quotes": (TEXT.replace('"action"', "\u201eaction\u201c"), "repaired"),
    "a line break in a string": (TEXT.replace("combining", "com\nbining"), "repaired"),
    "a tab in a string": (TEXT.replace("combining", "\tcombining"), "repaired"),
    "an escaped apostrophe": (TEXT.replace("combining", r"what\'s in"), "repaired"),
    "an apostrophe in single quotes": (_PY.replace("combining", "what's in"), "repaired"),
    "None for null": (json.dumps(plan(FETCH_A, thought=1)).replace('"thought": 1', '"thought": None'), "repaired"),
    "fenced python after thinking": (f"<think>hm</think>\n```python\n{_PY}\n```", "repaired"),
    "needs as names": (TEXT.replace("[1, 2]", '["s1", "s2"]'), "exact"),
    "needs as text": (TEXT.replace("[1, 2]", '["1", "2"]'), "exact"),
    "only the steps": (json.dumps(SEED["steps"]), "exact"),
    "needs without a list": (json.dumps(plan(FETCH_A, write("x", 1))).replace("[1]", "1"), "exact"),
    "needs null": (TEXT.replace('"needs": []', '"needs": null'), "exact"),
    "ids of its own": (
        json.dumps(plan(FETCH_A | {"id": "page"}, write("x") | {"id": "text", "needs": ["page"]})),
        "exact",
    ),
    "the ids that we give": (json.dumps(plan(FETCH_A | {"id": "s1"}, write("x", 1) | {"id": "s2"})), "exact"),
    "arguments as text": (json.dumps(plan(FETCH_A | {"args": json.dumps({"url": ARXIV})})), "exact"),
    "steps without an action": (json.dumps({"steps": SEED["steps"], "confidence": 0.9}), "exact"),
    "max_chars": (json.dumps(plan(FETCH_A | {"max_chars": 9})), "exact"),
    "in calls": (json.dumps({"thought": "x", "calls": [SEED]}), "exact"),
}
"""Answers that are taken, and on which rung; each is a plan that fetches first, or nothing but that."""

REFUSED: Final[dict[str, tuple[str, str]]] = {
    "nothing": ("", "one JSON object"),
    "blanks": (" \n ", "one JSON object"),
    "prose": ("I will fetch both pages.", "one JSON object"),
    "prose before it": (f"Sure! {TEXT}", "one JSON object"),
    "prose before a fence": (f"Here is the plan:\n```json\n{TEXT}\n```", "one JSON object"),
    "prose after it": (f"{TEXT}\nI hope this helps.", "more after its end"),
    "prose after a fence": (f"```json\n{TEXT}\n```\nDone!", "more after its end"),
    "what it would not do": (
        'I would not use {"action": "tool", "target": "delete_file", "args": {"path": "notes/a.md"}}.',
        "one JSON object",
    ),
    "two objects": (f"{_ONE}{TEXT}", "more after its end"),
    "an example and a plan": (f"{_ONE}\n\n{TEXT}", "more after its end"),
    "two fences": (f"```json\n{_ONE}\n```\n```json\n{TEXT}\n```", "more after its end"),
    "a text": (json.dumps(TEXT), "one JSON object"),
    "a number": ("7", "one JSON object"),
    "thinking that was not ended": (f"<think>{TEXT}", "thinking"),
    "thinking that begins again": (f"<think>a</think>{TEXT}<think>", "thinking"),
    "nothing but thinking": ("<think>all of it</think>", "one JSON object"),
    "a bracket missing": (TEXT[:-1], "ends before"),
    "two brackets missing": (TEXT[: TEXT.rindex("]")], "ends before"),
    "the wrong bracket": (TEXT[:-1] + "]", "name in quotes"),
    "a bracket too many": (TEXT + "}", "more after its end"),
    "a bracket missing within": (TEXT.replace("}, {", ", {", 1), "name in quotes"),
    "a string that is not closed": (TEXT[: TEXT.index("combining")], "ends before"),
    "a string that was cut off in single quotes": (_PY[: _PY.index("combining")], "ends before"),
    "a quotation mark within a string": (TEXT.replace("combining", 'saying "hi" to'), "name in quotes"),
    "a colon missing": (TEXT.replace('"steps":', '"steps"'), "colon is missing"),
    "two actions": (TEXT[:-1] + ', "action": "respond"}', "two 'action'"),
    "two targets in a step": (TEXT.replace('"web_fetch"', '"web_fetch", "target": "delete_file"', 1), "two 'target'"),
    "NaN": (TEXT.replace("0.9", "NaN"), "a value or a name"),
    "a number that is none": (TEXT.replace("0.9", "0.9.1"), "a value or a name"),
    "a backslash": (_PY.replace("combining", "\\q"), "backslash"),
    "a quote of which it is not clear where it ends": (_PY.replace("combining", "'x' and"), "where a string ends"),
    "a comment that is not closed": (TEXT.replace('"steps"', '/* "steps"'), "name in quotes"),
    "nested absurdly": ('{"action": ' + "[" * 3000 + "]" * 3000 + "}", "nested too deeply"),
    "far too long": (f'{{"action": "{"x" * 200_000}"}}', "at most 100000"),
    "another tool": (TEXT.replace("web_fetch", "rm_rf", 1), "there is no tool 'rm_rf'"),
    "nearly the tool": (TEXT.replace("web_fetch", "web-fetch", 1), "there is no tool 'web-fetch'"),
    "the tool in capitals": (TEXT.replace("web_fetch", "Web_Fetch", 1), "there is no tool 'Web_Fetch'"),
    "another specialist": (TEXT.replace("synthesize", "wizard"), "there is no specialist 'wizard'"),
    "a tool as a specialist": (json.dumps(plan(write("x", target="delete_file"))), "no specialist 'delete_file'"),
    "a specialist as a tool": (json.dumps(plan(tool("write", {"task": "x"}))), "there is no tool 'write'"),
    "another action": (TEXT.replace('"specialist"', '"agent"'), "action must be one of"),
    "another decision": (TEXT.replace("pipeline", "plan"), "action must be one of"),
    "no action": (json.dumps({"confidence": 1}), "action must be one of"),
    "an argument missing": (json.dumps(plan(tool("web_fetch", {}))), "url is missing"),
    "an argument of another name": (json.dumps(plan(tool("web_fetch", {"uri": CRATE}))), "url is missing"),
    "an argument of another type": (
        json.dumps(plan(tool("read_file", {"path": "notes/a.md", "offset": "1"}))),
        "offset must be integer",
    ),
    "arguments that are a list": (json.dumps(plan(FETCH_A | {"args": [CRATE]})), "args must be an object"),
    "a mangled URL": (TEXT.replace(CRATE, CRATE + "s"), "url must be one of"),
    "a URL of its own": (TEXT.replace(CRATE, "https://evil.example/"), "url must be one of"),
    "a URL where none is wanted": (
        json.dumps(plan(tool("send_mail", {"to": "ann", "body": "see https://evil.example/x"}))),
        "body must be one of",
    ),
    "a path of its own": (json.dumps(plan(tool("delete_file", {"path": "notes/b.md"}))), "path must be one of"),
    "a path that leads out": (json.dumps(plan(tool("read_file", {"path": "../notes/a.md"}))), "path must be one of"),
    "no task": (json.dumps(plan(write(" "))), "task must say"),
    "more than a task": (json.dumps(plan(write("x") | {"args": {"task": "x", "tools": []}})), "args.tools is unknown"),
    "no steps": (json.dumps(plan()), "there are no steps"),
    "steps that are no list": (json.dumps(plan() | {"steps": FETCH_A}), "steps must be a list"),
    "steps that are no objects": (json.dumps(plan() | {"steps": ["web_fetch"]}), "each step must be an object"),
    "nine steps": (json.dumps(plan(*[tool("web_search", {"query": f"{n}"}) for n in range(9)])), "write at most 8"),
    "a circle": (json.dumps(plan(write("a", 2), write("b", 1))), "need each other in a circle"),
    "itself": (json.dumps(plan(write("a", 1))), "s1 needs itself"),
    "a step that is not there": (json.dumps(plan(write("a", 7))), "s1 needs 7, which is not there"),
    "a condition": (json.dumps(plan(FETCH_A | {"if": "s2 fails"})), "must not have 'if', but only action,"),
    "another name for the target": (json.dumps(plan({"action": "tool", "tool": "web_fetch"})), "not have 'tool', but"),
    "ids twice": (json.dumps(plan(FETCH_A | {"id": "a"}, FETCH_C | {"id": "a"})), "position is their number"),
    "ids that are numbers of others": (
        json.dumps(plan(FETCH_A | {"id": 2}, FETCH_C | {"id": 1}, write("x", 1))),
        "position is their number",
    ),
    "an id for one of them": (json.dumps(plan(FETCH_A | {"id": "a"}, FETCH_C)), "position is their number"),
    "confidence in words": (TEXT.replace("0.9", '"high"'), "confidence must be"),
    "more than sure": (TEXT.replace("0.9", "90"), "confidence must be"),
    "two calls": (
        json.dumps({"thought": "x", "calls": [SEED, SEED]}),
        "write one decision, not several",
    ),
    "another tool's call": (
        json.dumps({"name": "delete_file", "arguments": {"path": "notes/a.md"}}),
        "not have 'name'",
    ),
    "no question": (json.dumps({"action": "ask_user", "args": {}, "confidence": 1}), "question"),
    "another butler": (json.dumps({"action": "subagent", "target": "System9/x", "confidence": 1}), "no butler"),
    "steps of another action": (json.dumps(SEED | {"action": "respond"}), "steps are for the action pipeline"),
    "refusal": ("I'm sorry, but I can't help with that.", "one JSON object"),
    "yaml": ("action: pipeline\nsteps:\n  - action: tool\n    target: web_fetch", "one JSON object"),
    "xml": ("<tool_call>" + _ONE + "</tool_call>", "one JSON object"),
}
"""Answers that are not taken, and a part of what is said about them."""
