"""What a platform is answered that checks the URL of a hook: by an installed package, as pure functions of it."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from switchboard.transport.plug_ins import plug_ins
from tests.servers import Opened, open_server
from tests.webhooks import account

PACKAGE = """
import hmac
import json

from msgspec.structs import replace

from switchboard.connectors.webhook.manifest import MANIFEST as WEBHOOK


def challenge(account, asked, now):
    right = hmac.compare_digest(asked.get("token", ""), account.secrets["secret"])
    return asked.get("challenge") if right else None


def reply(account, posted):
    body = json.loads(posted.body)
    return json.dumps({"challenge": body["shake"]}).encode() if "shake" in body else None


def hook(account):
    return replace(WEBHOOK.hook(account), challenge=challenge, reply=reply)


MANIFEST = replace(WEBHOOK, name="shaking", hook=hook)
"""
TOKEN = {"authorization": "Bearer a-long-token"}


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    about = tmp_path / "packages/shaking-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: shaking\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[switchboard.connectors]\nshaking = shaking_hooks:MANIFEST\n")
    (about.parent / "shaking_hooks.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(str(about.parent))
    plug_ins.cache_clear()
    yield
    plug_ins.cache_clear()
    sys.modules.pop("shaking_hooks", None)


@pytest.fixture
async def server(database_url: str, tmp_path: Path) -> AsyncIterator[Opened]:
    directory = tmp_path / "channels.d"
    for name in ("shaking", "plain"):
        account(directory, name, 'verify = "bearer"', "a-long-token")
    file = directory / "shaking.toml"
    file.write_text(file.read_text().replace('channel = "webhook"', 'channel = "shaking"'))
    async with open_server(database_url, tmp_path / "data", more={"channels_dir": directory}) as opened:
        yield opened


@pytest.mark.parametrize(
    ("name", "asked", "status", "said"),
    [
        ("shaking", {"token": "a-long-token", "challenge": "<b>1158201444</b>"}, 200, "<b>1158201444</b>"),
        ("shaking", {"token": "a-long-token", "challenge": "x" * 1024}, 200, "x" * 1024),
        ("shaking", {"token": "a-long-token", "challenge": "x" * 1025}, 403, None),
        ("shaking", {"token": "another", "challenge": "1158201444"}, 403, None),
        ("shaking", {}, 403, None),
        ("plain", {"token": "a-long-token", "challenge": "1158201444"}, 404, None),
        ("nobody", {"token": "a-long-token", "challenge": "1158201444"}, 404, None),
    ],
)
async def test_a_challenge_is_answered_as_plain_text_or_refused(
    server: Opened, name: str, asked: dict[str, str], status: int, said: str | None
) -> None:
    found = await server.http.get(f"/hooks/{name}", params=asked, headers={"authorization": ""})
    assert found.status_code == status
    if said is not None:
        assert found.text == said
        assert found.headers["content-type"] == "text/plain; charset=utf-8"
        assert found.headers["x-content-type-options"] == "nosniff"


async def test_a_handshake_is_answered_once_verified_and_nothing_is_stored(server: Opened) -> None:
    shake = b'{"shake": 42}'
    refused = await server.http.post("/hooks/shaking", content=shake, headers={"authorization": "Bearer another"})
    found = await server.http.post("/hooks/shaking", content=shake, headers=TOKEN)
    assert (refused.status_code, found.status_code, found.json()) == (401, 200, {"challenge": 42})
    assert found.headers["content-type"] == "application/json"
    assert await server.lab.count("select count(*) from message_inbox") == 0
    event = await server.http.post("/hooks/shaking", content=b'{"id": "k"}', headers=TOKEN)
    assert event.json()["status"] in {"accepted", "duplicate"}
