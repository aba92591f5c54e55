"""Passages between connectors and servers of different releases: no message is refused, and no word is lost."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from switchboard.connectors.kernel.wire import submitted_form
from switchboard.domain.envelope import Envelope, Passage
from switchboard.domain.message import RequestId
from switchboard.store.messages import inbox
from switchboard.testing.connectors import ScriptedPlatform
from switchboard.testing.connectors.running import connector, scripted, texts, until
from tests.lab import envelope
from tests.servers import CONNECTOR, open_server

NEW: Sequence[str] = ("passages",)
SAID = (
    Passage(kind="quoted", text="Do you come?", author="Ben"),
    Passage(kind="own", text="Yes.\nAt five."),
    Passage(kind="forwarded", text="> We start at five."),
    Passage(kind="between", text="So be there."),
)
TEXT = "Do you come?\n\nYes.\nAt five.\n\n> We start at five.\n\nSo be there."


def with_passages(**more: Any) -> Envelope:
    made = envelope("x", **more)
    return replace(made, payload=replace(made.payload, normalized_text=TEXT, passages=SAID))


def payload_of(sent: bytes) -> Mapping[str, Any]:
    payload: Mapping[str, Any] = json.loads(sent)["payload"]
    return payload


@pytest.mark.parametrize("accepts", [(), NEW, ("something", "else")], ids=["older", "this one", "another"])
async def test_a_connector_sends_what_its_server_reads(accepts: Sequence[str]) -> None:
    platform, switchboard = ScriptedPlatform(), scripted()
    switchboard.accepts = accepts
    platform.add("t", "hello")
    event = platform.add("t", "x")
    platform.events[-1] = replace(
        event, envelope=replace(event.envelope, payload=replace(event.envelope.payload, **_payload()))
    )
    async with connector(platform.configured, switchboard):
        await until(lambda: len(switchboard.accepted) + len(switchboard.quarantined) == 2, "both are there")
    assert switchboard.quarantined == {}
    assert texts(switchboard.accepted) == ["hello", TEXT]
    given = switchboard.accepted[1]["payload"].get("passages", [])
    assert [one["kind"] for one in given] == ([one.kind for one in SAID] if accepts == NEW else [])


def _payload() -> dict[str, Any]:
    return {"normalized_text": TEXT, "passages": SAID}


def test_a_server_gets_either_the_passages_or_the_text() -> None:
    sent = payload_of(submitted_form(with_passages(), NEW))
    assert "normalized_text" not in sent
    assert [one["text"] for one in sent["passages"]] == [one.text for one in SAID]
    assert "passages" not in payload_of(submitted_form(envelope("hello"), NEW))


def test_an_older_server_gets_the_text_of_a_mail_by_which_it_knows_it() -> None:
    raw = {"headers": {"subject": "x"}, "compared": "Yes.\nAt five."}
    mail = with_passages(channel="email", raw=raw)
    old, new = payload_of(submitted_form(mail, ())), payload_of(submitted_form(mail, NEW))
    assert (old["normalized_text"], old["raw"]) == ("Yes.\nAt five.", {"headers": {"subject": "x"}})
    assert new["raw"] == raw
    chat = payload_of(submitted_form(with_passages(raw=raw), ()))
    assert (chat["normalized_text"], chat["raw"]) == (TEXT, raw), "of other platforms, raw is theirs"
    for odd in ("", 7, None):
        mail = with_passages(channel="email", raw={"compared": odd})
        assert payload_of(submitted_form(mail, ()))["normalized_text"] == TEXT


async def test_this_server_reads_connectors_of_both_kinds(database_url: str, tmp_path: Path) -> None:
    async with open_server(database_url, tmp_path / "data") as server:
        server.http.headers.update(await server.token_for(CONNECTOR))
        lease = {"channel": "telegram", "endpoint": "bot:house", "instance_id": "a"}
        accepts = (await server.http.post("/v1/connectors/lease", json=lease)).json()["accepts"]
        assert accepts == [*NEW, "recordings"]
        old, new = with_passages(event="1"), with_passages(event="2")
        forms = [submitted_form(old, ()), submitted_form(new, accepts)]
        again = [submitted_form(old, accepts), submitted_form(new, ())]
        batch = b'{"envelopes":[' + b",".join((*forms, *again)) + b"]}"
        answer = await server.http.post("/v1/ingest/batch", content=batch, headers={"content-type": "application/json"})
        results = answer.json()["results"]
        assert [one["duplicate"] for one in results] == [False, False, True, True]
        stored = [await inbox.get_message(server.lab.database, RequestId(one["request_id"])) for one in results[:2]]
        kept = [one.envelope["payload"] for one in stored if one is not None]
        assert [one["normalized_text"] for one in kept] == [TEXT, TEXT]
        assert [len(one.get("passages", ())) for one in kept] == [0, len(SAID)]
        both = json.loads(forms[1])
        both["payload"]["normalized_text"] = "Something else."
        refused = await server.http.post("/v1/ingest", json=both)
        error = refused.json()["error"]
        assert (refused.status_code, error["code"], error["field"]) == (
            422,
            "passages_differ",
            "payload.normalized_text",
        )
        assert (await server.http.get("/v1/quarantine")).json().get("events", []) == []


@pytest.mark.parametrize("accepts", [("passages", "recordings"), NEW, ()], ids=["this one", "older", "oldest"])
def test_a_server_is_told_of_voice_messages_only_if_it_reads_of_them(accepts: Sequence[str]) -> None:
    file = {"media_type": "audio/ogg", "size_bytes": 3, "voice": True, "seconds": 14}
    [sent] = payload_of(submitted_form(envelope("x", payload={"normalized_text": "", "attachments": [file]}), accepts))[
        "attachments"
    ]
    assert sent == (file if "recordings" in accepts else {"media_type": "audio/ogg", "size_bytes": 3})
