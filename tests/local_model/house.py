"""An installation as a user has it: `switchboard up` with an embedded database, a team and the local model.

In: the executables of any checkout, and the addresses of the model and of pages; out: a `House`, to which messages are
sent over HTTP, and which tells what became of them. Next: `tasks.py`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx
from msgspec import Struct

from switchboard.testing.bot_api import TOKEN
from tests.local_model.phone import (
    FIRST,
    MOST,
    POSTAL,
    SECRETS,
    Diary,
    Phone,
    fill_mailbox,
    login_of,
    mailbox_of,
    open_diary,
    open_phone,
)
from tests.local_model.seeds import workspace
from tests.mail_servers import running_pymap

SENDER: Final = "ann"
SOON: Final = 60.0
_DESK: Final = {
    "restaurant": "The restaurant: tables, menus, opening hours.",
    "parcels": "Parcels: where they are, when they come, where they are left.",
    "accounts": "Money: invoices, payments, refunds.",
    "helpdesk": "Help with computers, phones and passwords.",
}
FRIENDS: Final = {
    "Ben Baker": "ben.baker@friends.example",
    "Benedict Stone": "benedict.stone@friends.example",
    "Mia Novak": "mia.novak@friends.example",
    "Jonas Weber": "jonas.weber@friends.example",
    "Clara Diaz": "clara.diaz@friends.example",
}
_TELEGRAM: Final = (
    'channel = "telegram"\nsecrets = {{token = {{env = "BOT_TOKEN"}}}}\n[settings]\napi_url = "{url}"\npoll_s = 1\n'
)
_FILLER: Final = {"rules": [], "replies": [], "otherwise": {"text": "Noted."}}


class Places(Struct, frozen=True):
    """`programs`: the directory with `switchboard` and `python`. `model`: the address of the model's API. `pages`: host
    and port of the web server. `calls`: the setting of that name of the model; empty: it is not set. `private`: with a
    phone and a diary.
    """

    programs: Path
    model: str
    pages: str
    calls: str = ""
    private: bool = False


@dataclass(frozen=True, slots=True)
class House:
    """A running installation."""

    client: httpx.Client
    workspace: Path
    pages: str
    phone: Phone | None = None
    diary: Diary | None = None

    def send(self, endpoint: str, text: str, thread: str = "", sender: str = SENDER) -> str:
        """Send a message, in a conversation of its own unless `thread` names one; its id."""
        event = {"external_event_id": str(uuid4()), "external_thread_id": thread or str(uuid4())}
        envelope = {
            "schema_version": "ingest.v1",
            "source": {"channel": "api", "provider": "http", "endpoint_identity": endpoint},
            "event": {**event, "observed_at": datetime.now(UTC).isoformat()},
            "sender": {"identity": sender, "chat_type": "private"},
            "payload": {"raw": None, "normalized_text": text, "attachments": []},
            "control": {"policy_tier": "interactive"},
        }
        return str(self._post("/v1/ingest", envelope)["request_id"])

    def answer(self, request_id: str, within: float) -> str:
        """The reply to a message; empty if it waits for a person or has failed. It is stopped after `within` seconds,
        and then the reply is what was written until then.
        """
        end = time.monotonic() + within
        while time.monotonic() < end:
            if text := self._reply(request_id, wait_s=2):
                return text
            if not self._is_at_work(request_id):
                return self._reply(request_id, wait_s=0)
        self._post(f"/v1/messages/{request_id}/stop", {})
        return self._reply(request_id, wait_s=5)

    def last_answer(self, request_id: str, within: float) -> str:
        """All replies to a message that was answered before, once nobody works on it. Raises TimeoutError."""
        end = time.monotonic() + within
        while self._is_at_work(request_id):
            if time.monotonic() > end:
                raise TimeoutError("the message is still worked on")
            time.sleep(0.2)
        return self._reply(request_id, wait_s=0)

    def _reply(self, request_id: str, wait_s: int) -> str:
        replies = self.get(f"/v1/messages/{request_id}/replies", wait_s=wait_s)["replies"]
        return "\n\n".join(str(one["text"]) for one in replies)

    def _is_at_work(self, request_id: str) -> bool:
        message = self.get(f"/v1/messages/{request_id}")
        waits = any(one["state"] == "waiting" for one in message["deliveries"])
        return message["state"] == "in_flight" and not waits

    def get(self, path: str, **query: str | int) -> dict[str, Any]:
        """A JSON object of the API. Raises `httpx.HTTPStatusError`."""
        return dict(self.client.get(path, params=query).raise_for_status().json())

    def introduce(self) -> None:
        """Say whose the accounts of the phone are, and have the modules read their server."""
        self._post("/v1/people", {"person_id": "ann", "name": "Ann"})
        for account in range(FIRST, FIRST + MOST):
            self._post("/v1/people/ann/link", {"channel": "telegram", "identity": str(account)})

    def read_modules(self, within: float = 60.0) -> None:
        """Have the modules read their servers now. Raises TimeoutError."""
        before = self._chores_done()
        for module in ("calendar", "contacts"):
            self._post(f"/v1/modules/{module}/sync", {})
        end = time.monotonic() + within
        while time.monotonic() < end:
            now = self._chores_done()
            if now and all(done and done > before.get(name, "") for name, done in now.items()):
                return
            time.sleep(0.2)
        raise TimeoutError(f"the modules did not read their servers: {self._chores_done()}")

    def _chores_done(self) -> dict[str, str]:
        """When each chore of an account was done last."""
        modules = self.get("/v1/modules")["modules"]
        found = {
            (one["module"], chore["name"]): chore for one in modules for chore in one["chores"] if chore["account"]
        }
        return {f"{module} {name}": str(chore["last_at"] or "") for (module, name), chore in found.items()}

    def text(self, text: str, within: float, *, postal: bool = False) -> str:
        """Write from the phone; the id of the message, once it is there. Raises TimeoutError."""
        assert self.phone is not None
        before = {one["request_id"] for one in self._texted()}
        self.phone.say(text, postal=postal)
        end = time.monotonic() + within
        while time.monotonic() < end:
            if new := [one["request_id"] for one in self._texted() if one["request_id"] not in before]:
                return str(new[0])
            time.sleep(0.2)
        raise TimeoutError("the message did not arrive")

    def _texted(self) -> list[dict[str, Any]]:
        return list(self.get("/v1/messages", channel="telegram", limit=100)["messages"])

    def approve_calls(self, request_id: str) -> int:
        """Approve the calls that a message waits for; how many there were."""
        pending = self.get("/v1/approvals", state="pending")["approvals"]
        waiting = [one for one in pending if one["request_id"] == request_id and one["kind"] == "call"]
        for one in waiting:
            self._post(f"/v1/approvals/{one['approval_id']}/approve", {})
        return len(waiting)

    def _post(self, path: str, body: object) -> dict[str, Any]:
        return dict(self.client.post(path, json=body).raise_for_status().json())


@contextmanager
def running_house(data: Path, places: Places) -> Iterator[House]:
    """An installation in the empty directory `data`, until the end of the block."""
    data.chmod(0o755)  # as root, PostgreSQL runs as another user
    files = data / "files"
    for name, text in workspace().items():
        (files / name).parent.mkdir(parents=True, exist_ok=True)
        (files / name).write_text(text)
    (data / "script.json").write_text(json.dumps(_FILLER))
    python, script = places.programs / "python", data / "script.json"
    scripted = [str(python), "-m", "switchboard.testing.scripted_llm", "--script", str(script)]
    with _started(scripted, data, {}) as filler:
        (data / "teams").mkdir()
        (data / "teams" / "root.json").write_text(json.dumps(_root(places, files)))
        (data / "teams" / "desk.json").write_text(json.dumps(_desk()))
        settings = {"MODELS": json.dumps(_models(places, filler["url"]))}
        command = [str(places.programs / "switchboard"), "up", "--json"]
        with (
            _opened_private(data, places) as (phone, diary, more),
            _started(command, data, {**settings, **more}) as said,
        ):
            token = (data / "operator.token").read_text().strip()
            with httpx.Client(base_url=said["url"], headers={"Authorization": f"Bearer {token}"}, timeout=60) as client:
                house = House(client, files, places.pages, phone, diary)
                if phone:
                    house.introduce()
                yield house


@contextmanager
def _opened_private(data: Path, places: Places) -> Iterator[tuple[Phone | None, Diary | None, Mapping[str, str]]]:
    """The phone, the diary and a mailbox, if they are wanted, and the settings that connect them."""
    if not places.private:
        yield None, None, {}
        return
    with open_phone() as phone, open_diary(FRIENDS) as diary, running_pymap() as imap:
        fill_mailbox(imap)
        (data / "channels.d").mkdir()
        (data / "channels.d" / "phone.toml").write_text(_TELEGRAM.format(url=phone.url))
        account = {"accounts": {"ann": login_of(diary)}}
        mailbox = {"accounts": {"ann": mailbox_of(imap)}}
        modules = json.dumps({"calendar": account, "contacts": account, "email": mailbox})
        os.environ.update(SECRETS | {"BOT_TOKEN": TOKEN})
        yield phone, diary, {"CHANNELS_DIR": str(data / "channels.d"), "MODULES": modules}


@contextmanager
def _started(command: list[str], data: Path, settings: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """A process that says in its first line where it listens; its log is below `data`."""
    ours = {
        "DATA_DIR": str(data),
        "TEAMS_DIR": str(data / "teams"),
        "PORT": "0",
        "CLASSIFY__MODELS": '["local"]',
        "CLASSIFY__TIMEOUT": "300",
        "MEMORY__COMPACT_MODEL": "local",
        "TRIO__MAIN": "local",
        **settings,
    }
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SWITCHBOARD_")}
    environment = kept | {f"SWITCHBOARD_{name}": value for name, value in ours.items()}
    with (data / f"{Path(command[0]).name}.log").open("w") as log:
        process = subprocess.Popen(command, cwd=data, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
    with process:
        try:
            assert process.stdout is not None
            said = json.loads(process.stdout.readline() or "{}")
            if "url" not in said:
                raise RuntimeError(f"{command[0]} did not start: {said}; see {log.name}")
            yield said
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(SOON)
            except subprocess.TimeoutExpired:
                process.kill()


def _models(places: Places, filler: str) -> list[dict[str, object]]:
    local: dict[str, object] = {
        "name": "local",
        "kind": "openai",
        "model": "local",
        "base_url": places.model,
        "profile": "local",
        "timeout": 300.0,
        "max_tokens": 800,
    }
    scripted: dict[str, object] = {
        "name": "scripted",
        "kind": "openai",
        "model": "scripted",
        "base_url": f"{filler}/v1",
    }
    return [local | ({"calls": places.calls} if places.calls else {}), scripted]


def _root(places: Places, files: Path) -> dict[str, object]:
    owned = {"owners": [f"api:{SENDER}"], "workspace": str(files), "private_hosts": [places.pages]}
    make = {"tool": "execute_command", "build": {"command": "make build"}, "test": {"command": "make test"}}
    plan = {"specialist_tokens": 400, "deadline": 900}
    tools = ["read_file", "write_file", "list_files", "execute_command", "web_fetch"]
    systems = [
        _butler("planner", "trio", {**owned, "tools": tools, "builds": make, "plan": plan}),
        _butler("hand", "model", {**owned, "models": ["local"], "max_tokens": 600}),
        _butler("minder", "model", {**owned, "models": ["local"], "max_tokens": 300, "modules": ["schedule"]}),
        *([_secretary(), _postman()] if places.private else []),
        _butler("keeper", "model", {"models": ["local"], "max_tokens": 300, "owners": [f"api:{SENDER}"]}),
        _butler("diary", "model", {"models": ["scripted"], "owners": [f"api:{SENDER}"]}),
    ]
    rules = [_rule(one["name"], {"system_id": f"System1/{one['name']}"}) for one in systems]
    if places.private:
        rules.append({"name": "phone", "channel": "telegram", "targets": [{"system_id": "System1/secretary"}]})
        postal = {"telegram_user_id": [str(account) for account in POSTAL]}
        asks = {"name": "about mail", "channel": "telegram", "filters": postal}
        rules.append({**asks, "targets": [{"system_id": "System1/postman"}]})
    return {
        "team": {"name": "root"},
        "purpose": "Everything",
        "systems": systems,
        "routing_rules": [*rules, _rule("desk", {"team_id": "desk"})],
    }


def _secretary() -> dict[str, object]:
    """Knows a person's time and friends, and has few tools, as is better for a small model."""
    config = {"models": ["local"], "max_tokens": 300, "owners": ["person:ann"], "modules": ["calendar", "contacts"]}
    tools = ["calendar_query", "calendar_create", "contacts_resolve"]
    does = "Looks whether the time is free; if it is, puts the event there, and invites whoever is to come."
    return {**_butler("secretary", "model", {**config, "tools": tools}), "description": does}


def _postman() -> dict[str, object]:
    """The same for a person's mailbox."""
    config = {"models": ["local"], "max_tokens": 300, "owners": ["person:ann"], "modules": ["email"]}
    does = "Looks into the mailbox for what was written and answered, and says it with names."
    return {**_butler("postman", "model", {**config, "tools": ["email_search", "email_read"]}), "description": does}


def _desk() -> dict[str, object]:
    systems = [{**_butler(name, "memo", {}), "description": said} for name, said in _DESK.items()]
    return {"team": {"name": "desk", "parent": "root"}, "purpose": "Customers", "classify": True, "systems": systems}


def _butler(name: str, engine: str, config: Mapping[str, object]) -> dict[str, object]:
    return {"name": name, "type": "operation", "description": "Helps.", "engine": engine, "config": config}


def _rule(endpoint: object, target: Mapping[str, str]) -> dict[str, object]:
    return {"name": endpoint, "channel": "api", "filters": {"endpoint": endpoint}, "targets": [target]}
