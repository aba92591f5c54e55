"""The demo's models: those of the settings, otherwise a scripted one on this machine.

Called by `demonstration.py`. In: settings and a directory; out: a `DemoModel`: its description, environment for the
parts, and the example teams with a root that asks a model.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import asdict, replace

from switchboard.app.settings import Settings
from switchboard.cli.demo.library import LIBRARY, Pages, planner
from switchboard.cli.demo.library import rules as library_rules
from switchboard.cli.messages.talk import local_user
from switchboard.domain.json_values import JsonObject
from switchboard.llm.spec import API_KINDS, ModelSpec

_TIMEOUT_S: Final = 15.0
"""A demo waits for no model longer than this."""
_TYPED: Final = "typed at home"
"""The rule of the examples that is left out, so that what is typed is decided by the model."""
_CHOICES: Final = {
    "water the tomatoes": ("System1/diary", "A note for tonight."),
    "blood test": ("System1/health", "A question about an examination."),
    "leave our account": ("finance", "A question about money."),
}
"""What the scripted model says to the lines of cli.txt. To everything else it names nobody."""
_NOBODY: Final = "None of the candidates fits."
DESK: Final = "desk"
"""The session in which the butler with a model is written to."""
_CLERK: Final = (
    "You keep people's lists as text files. Write them with your tools, and say in one sentence what you did."
)
_LIST: Final = {"path": "shopping.txt", "content": "milk\nbread\n"}
_COMMAND: Final = "sort shopping.txt"
_APPROVED: Final = ("write_file", "execute_command")
"""The tools that the butler with a model asks for before it calls them."""


class DemoModel(Struct, frozen=True):
    """`said` describes it in one line; `script` is for a scripted model to start; None: the user's own, or none."""

    said: str
    environment: Mapping[str, str]
    teams: Path
    script: Path | None = None
    certain: bool = True
    """Whether its choice is known beforehand."""
    clerk: bool = True
    """Whether there is a butler with a model, which a command line cannot be."""

    def at(self, url: str) -> Mapping[str, str]:
        """The environment once the scripted model listens at `url`."""
        known = {"name": "scripted", "kind": "openai", "model": "scripted-1", "base_url": f"{url}/v1"}
        return _environment_for([known], {"models": ["scripted"]})


def demo_model(settings: Settings, examples: Path, home: Path, pages: Pages, *, scripted: bool) -> DemoModel:
    """The models of the settings, unless `scripted` is requested or there are none; files go into `home`."""
    if settings.classify.models and not scripted:
        return _configure_model(settings, examples, home, pages)
    script = home / "script.json"
    script.write_text(json.dumps(_script_for(pages)), encoding="utf-8")
    said = "what no rule decides is decided by a scripted model on this machine"
    return DemoModel(said, {}, _write_asking_teams(examples, home, ["scripted"], pages), script)


def _configure_model(settings: Settings, examples: Path, home: Path, pages: Pages) -> DemoModel:
    asked = [model for model in settings.models if model.name in settings.classify.models]
    for_turns = [model.name for model in asked if model.kind in API_KINDS]
    teams = _write_asking_teams(examples, home, for_turns, pages)
    timeout = min(settings.classify.timeout, _TIMEOUT_S)
    classify = _dump_table(replace(settings.classify, mcp_url=None, timeout=timeout))
    names = ", then ".join(settings.classify.models)
    said = f"what no rule decides is decided by your model: {names}; the messages are fictitious"
    environment = _environment_for([_dump_model(one) for one in asked], classify)
    environment["SWITCHBOARD_SPENDING"] = json.dumps(_dump_table(settings.spending))
    return DemoModel(said, environment, teams, certain=False, clerk=bool(for_turns))


def _dump_table(table: Struct) -> JsonObject:
    return {name: value for name, value in asdict(table).items() if value is not None}


def _dump_model(model: ModelSpec) -> JsonObject:
    """As JSON, with absolute paths, since the parts of the demo run elsewhere."""
    known = _dump_table(model)
    if model.api_key_file is not None:
        known["api_key_file"] = str(model.api_key_file.absolute())
    if model.program is not None and os.sep in model.program:
        known["program"] = str(Path(model.program).absolute())
    return known


def _environment_for(models: list[JsonObject], classify: JsonObject) -> dict[str, str]:
    """Two attempts: the first may be lost with the killed worker."""
    return {"SWITCHBOARD_MODELS": json.dumps(models), "SWITCHBOARD_CLASSIFY": json.dumps({**classify, "attempts": 2})}


def _write_asking_teams(examples: Path, home: Path, models: Sequence[str], pages: Pages) -> Path:
    """The teams of the examples, except that the root asks a model, and has no rule for what is typed.

    `models` can take the turns of butlers, which are added: one that keeps lists, and one that plans.
    """
    copied = home / "examples"
    for part in ("agents", "teams"):
        shutil.copytree(examples / part, copied / part)
    root = copied / "teams" / "root.json"
    team = json.loads(root.read_text(encoding="utf-8"))
    team["classify"] = True
    team["routing_rules"] = [rule for rule in team["routing_rules"] if rule["name"] != _TYPED]
    if models:
        team["systems"] += [_clerk_of(models), planner(pages, models, _owner_here())]
        for session, butler in ((DESK, "clerk"), (LIBRARY, "librarian")):
            there = {"name": f"the {session}", "channel": "cli", "filters": {"session_id": session}}
            team["routing_rules"].append({**there, "targets": [{"system_id": f"System1/{butler}"}]})
    root.write_text(json.dumps(team, indent=2), encoding="utf-8")
    return copied / "teams"


def _clerk_of(models: Sequence[str]) -> JsonObject:
    config = {
        "models": list(models),
        "prompt": _CLERK,
        "owners": [_owner_here()],
        "approve": list(_APPROVED),
    }
    return {"name": "clerk", "type": "operation", "engine": "model", "description": "Keeps lists", "config": config}


def _owner_here() -> str:
    return f"cli:{local_user()}"


def _script_for(pages: Pages) -> Mapping[str, object]:
    """The script for the scripted LLM: which words in a prompt lead to which call."""
    rules = [
        {"when": {"prompt": words}, "replies": [{"calls": [_routing_call(butler, reason)]}], "again": True}
        for words, (butler, reason) in _CHOICES.items()
    ]
    return {"rules": [*library_rules(pages), *_clerk_rules(), *rules], "otherwise": {"text": _NOBODY}}


def _clerk_rules() -> list[JsonObject]:
    """Two tools, then a sentence. Without a sandbox for commands, no command is offered."""
    write = {"name": "write_file", "arguments": _LIST}
    run, look = {"name": "execute_command", "arguments": {"command": _COMMAND}}, {"name": "list_files", "arguments": {}}
    return [
        {"when": {"tool": "execute_command", "results": False}, "replies": [{"calls": [write, run]}], "again": True},
        {"when": {"tool": "write_file", "results": False}, "replies": [{"calls": [write, look]}], "again": True},
        {"when": {"results": True}, "replies": [{"text": "Milk and bread are on your list."}], "again": True},
    ]


def _routing_call(butler: str, reason: str) -> Mapping[str, object]:
    return {"name": "route_to_butler", "arguments": {"butler": butler, "reason": reason}}
