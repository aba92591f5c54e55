"""claude and codex call the tools of a butler over MCP, with a token for one person, as docs/calls.md connects them.

The programs are the real ones, as they come from npm; the model that they ask is scripted. The household runs with
Radicale and pymap.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from switchboard.llm.port import CliKind
from switchboard.testing.scripted_llm import Call, Reply, Request, ScriptedLlm
from tests.dav_servers import DavServer, card, event, radicale
from tests.documents import HOME, blocks
from tests.households import Household, accounts_of_ann, opened_household
from tests.mail_servers import running_pymap
from tests.mailboxes import a_mail, deliver
from tests.places import passable
from tests.processes import DEADLINE, until
from tests.programs import real_kinds, real_program

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
PROGRAMS: Final[tuple[CliKind, ...]] = ("claude-code", "codex")
CALLS: Final = HOME / "docs/calls.md"
TOMORROW: Final = datetime.now(UTC).date() + timedelta(days=1)
ToolCall = tuple[str, Mapping[str, Any]]
LOOKING: Final[tuple[ToolCall, ...]] = (
    ("calendar_query", {"day": f"{TOMORROW}"}),
    ("contacts_search", {"text": "Ben"}),
    ("email_search", {"words": "boiler"}),
)
TASK: Final = "Call these: "
NOTHING: Final = "No account is yours or your household's; an operator can add one to the settings."
SILENT: Final = {"name": "house", "kind": "openai", "model": "m", "base_url": "http://127.0.0.1:9/v1"}
"""The butler's own model, which no call needs."""
MODEL: Final = """
model = "scripted-1"
model_provider = "scripted"
[model_providers.scripted]
name = "scripted"
base_url = "{url}/v1"
env_key = "OPENAI_KEY"
wire_api = "responses"
"""


# The programs ---------------------------------------------------------------------------------------------------------


def configuration(key: str, household: Household) -> str:
    """What docs/calls.md has the program read, with the address of this household."""
    [shown] = [one.text for one in blocks(CALLS) if key in one.text]
    return shown.replace("http://127.0.0.1:8470", household.settings["SWITCHBOARD_URL"])


def claude(household: Household, home: Path, llm: ScriptedLlm) -> tuple[list[str], Mapping[str, str]]:
    """Its words and variables."""
    (home / "switchboard.json").write_text(configuration("mcpServers", household))
    words = [
        "--mcp-config",
        "switchboard.json",
        "--allowedTools",
        "mcp__switchboard",
        "--model",
        "scripted-1",
        "--bare",
    ]
    quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "ENABLE_TOOL_SEARCH": "false"}
    return ["-p", *words], {"ANTHROPIC_BASE_URL": llm.url, "ANTHROPIC_API_KEY": "none", **quiet}


def codex(household: Household, home: Path, llm: ScriptedLlm) -> tuple[list[str], Mapping[str, str]]:
    """The same; nobody is there to be asked."""
    told = configuration("mcp_servers", household) + 'default_tools_approval_mode = "approve"\n'
    (home / ".codex").mkdir()
    (home / ".codex" / "config.toml").write_text(MODEL.format(url=llm.url) + told)
    return ["exec", "--skip-git-repo-check", "--ephemeral"], {"OPENAI_KEY": "none"}


@dataclass(frozen=True)
class Asked:
    """A program that is asked something for a person."""

    kind: CliKind
    household: Household
    llm: ScriptedLlm
    token: str

    async def ask(self, *calls: ToolCall) -> list[Any]:
        """What the tools have answered to the model, which was given these calls as its task."""
        first = len(self.llm.requests)
        await asyncio.to_thread(self._run, TASK + json.dumps(calls))
        return [answer_in(said.text) for one in self.llm.requests[first:] for said in one.results]

    def _run(self, text: str) -> None:
        with passable("switchboard program ") as home:
            make = claude if self.kind == "claude-code" else codex
            words, more = make(self.household, home, self.llm)
            kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
            env = {**kept, "HOME": str(home), "SWITCHBOARD_TOKEN": self.token, **more}
            command = [str(real_program(self.kind)), *words, text]
            done = subprocess.run(
                command,
                env=env,
                cwd=home,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=DEADLINE,
                check=False,
            )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "That is all." in done.stdout


def answer_in(text: str) -> Any:
    """What a tool has answered; codex says how long that took before it."""
    return json.loads(text[text.index("{") :])


def model(request: Request) -> Reply:
    """Makes the calls of its task; what is pending then is looked at once."""
    asked = [said.text for said in request.messages if said.role == "user"][-1]
    if not request.results:
        [line] = [one for one in asked.splitlines() if one.startswith(TASK)]
        return Reply(calls=tuple(Call(name, arguments) for name, arguments in json.loads(line.removeprefix(TASK))))
    answers = [answer_in(said.text) for said in request.results]
    pending = [one["call_id"] for one in answers if one.get("state") == "pending"]
    if pending and len(answers) > 1:
        return Reply(calls=(Call("calls_get", {"call_id": pending[0]}),))
    return Reply("That is all.")


# What they are told ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def house() -> Iterator[tuple[Household, DavServer]]:
    """The household, and the server of Ann's calendar."""
    with passable("switchboard household ") as place, radicale() as diary, running_pymap() as imap:
        diary.of_events().put("dentist.ics", event("Dentist", start=f"{TOMORROW:%Y%m%d}T100000Z"))
        diary.put("ben.vcf", card("Ben Baker", "EMAIL:ben@friends.example"))
        deliver(imap, imap.user, a_mail("leak", "Our boiler", "The boiler leaks.", datetime.now(UTC)))
        with opened_household(place, accounts_of_ann(diary, imap, "nobody"), [SILENT]) as household:
            until(household.is_read)
            yield household, diary


def token_of(household: Household, name: str, person: str) -> str:
    """A token of the butler for a person, as docs/calls.md says."""
    whose = ("--system", "System1/home", "--person", person)
    return str(household.told("tokens", "create", name, "--role", "agent", *whose)["token"])


@pytest.mark.parametrize("kind", real_kinds(PROGRAMS))
async def test_a_program_has_the_tools_of_one_person(kind: CliKind, house: tuple[Household, DavServer]) -> None:
    household, diary = house
    at = "14:00" if kind == "codex" else "16:00"
    tokens = [await asyncio.to_thread(token_of, household, f"{kind}-{one}", one) for one in ("ann", "noor")]
    async with ScriptedLlm(model) as llm:
        ann, noor = (Asked(kind, household, llm, token) for token in tokens)
        note = ("calendar_create", {"title": f"Boiler at {at}", "start": f"{TOMORROW} {at}"})
        *found, pending, looked_at = await ann.ask(*LOOKING, note)
        for one, expected in zip(found, ("Dentist", "ben@friends.example", "Our boiler"), strict=True):
            assert one["state"] == "done"
            assert expected in one["text"]
        assert pending["state"] == looked_at["state"] == "pending"
        assert pending["approval_id"] == looked_at["approval_id"]
        assert events(diary, at) == 0

        await asyncio.to_thread(household.run, "approvals", "approve", pending["approval_id"])
        asking = ("calls_get", {"call_id": pending["call_id"], "wait_s": 20})
        [done] = await ann.ask(asking)
        assert (done["state"], json.loads(done["text"])["created"]) == ("done", f"Boiler at {at}")
        assert events(diary, at) == 1

        *refused, unknown = await noor.ask(*LOOKING, asking)
        assert [one["text"] for one in refused] == [NOTHING] * len(LOOKING)
        assert unknown["error"]["code"] == "not_found"


def events(diary: DavServer, at: str) -> int:
    """How many there are of the boiler at this time."""
    return sum(f"Boiler at {at}".encode() in one for one in diary.of_events().objects().values())
