"""A scripted switchboard in memory: the routes that a connector uses, with faults on request.

It is an `httpx2` transport, so no port is opened. In: requests; out: answers, and a record of what was accepted,
quarantined and sent, and with which lease. Next: `connectors/kernel/api.py`, the client.
"""

from __future__ import annotations

import asyncio
import base64
import json
import mimetypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final
from uuid import uuid4

import httpx2

from switchboard.core.envelope.read import parse_envelope
from switchboard.core.files.blobs import HEAD_BYTES, PREFIX, sniff
from switchboard.core.passages.own import JOINT
from switchboard.domain.errors import InvalidInput
from switchboard.domain.json_values import JsonObject
from switchboard.tasks import wait_at_most

_LEASE_S: Final = 60.0
Answer = tuple[int, JsonObject]
Refusal = Callable[[JsonObject], str | None]
"""From an envelope to the code with which it is refused; None: it is accepted."""


@dataclass(slots=True)
class _Outgoing:
    reply: JsonObject
    made: float
    files: list[bytes] = field(default_factory=list)
    parts: dict[int, JsonObject] = field(default_factory=dict)
    leased: bool = False
    lease: int = 0
    outcome: str = ""
    sent: float | None = None
    failed: bool = False
    due: float = 0.0
    until: float = 0.0


@dataclass(slots=True)
class PostedRecord:
    """The events that the platform has posted, or pushed to a connector, and that are not settled."""

    events: list[JsonObject] = field(default_factory=list)
    _marks: dict[str, int] = field(default_factory=dict)
    _last: int = 0

    def keep(self, raw: str, mark: str | None = None) -> None:
        """Keep an event, given in base64, unless one with its mark waits."""
        if mark in self._marks:
            return
        self._last += 1
        self.events.append({"posted_id": self._last, "raw": raw})
        if mark is not None:
            self._marks[mark] = self._last

    def after(self, number: int) -> list[JsonObject]:
        """Those with higher numbers."""
        return [one for one in self.events if one["posted_id"] > number]

    def settle(self, upto: int) -> None:
        """Those up to this number are settled."""
        self.events = self.after(upto)
        self._marks = {mark: number for mark, number in self._marks.items() if number > upto}


@dataclass(slots=True)
class LateRecord:
    """The reports of messages that were not delivered, by message and time; each counts once."""

    reports: dict[tuple[str, str], JsonObject] = field(default_factory=dict)
    _counted: set[tuple[str, str]] = field(default_factory=set)

    def count_against(self, parts: Iterable[JsonObject]) -> JsonObject | None:
        """The first report of one of these parts that has not counted yet, and refuse that part."""
        sent = {part.get("platform_message_id"): part for part in parts if part["state"] == "sent"}
        for name, report in self.reports.items():
            if name not in self._counted and name[0] in sent:
                self._counted.add(name)
                sent[name[0]]["state"] = "refused"
                return report
        return None


class ScriptedSwitchboard:
    """A switchboard as a connector sees it. `ttl_s` applies to leases of accounts, which expire by `clock`."""

    accepts: Sequence[str] = ("passages", "recordings")
    """The fields of messages that only newer releases know. Those that are not named are refused, as unknown fields."""

    heard: int | None = None
    """How many messages of a group butlers hear; None: a server of a release that does not know it."""

    writing: Mapping[str, tuple[int, str]] | None = None
    """What is written so far, by conversation: the number of the answer, and its text. None: an earlier release."""

    is_hooked = False
    """Whether the hook of the account answers."""

    def __init__(self, clock: Callable[[], float], ttl_s: float = 15.0) -> None:
        self.accepted: list[JsonObject] = []
        self.duplicates = 0
        self.blobs: dict[str, bytes] = {}
        """The uploaded files, by their SHA-256."""
        self.most_bytes = 10_000_000
        """Maximum size of a file."""
        self.no_room: str | None = None
        """Why no file is accepted at present."""
        self.strangers: set[str] = set()
        """Senders whose files are refused."""
        self.quarantined: dict[str, str] = {}
        self.raw: dict[str, str] = {}
        """The quarantined events as the platform delivered them, in base64."""
        self.replays: list[str] = []
        """The ids of quarantined events that must be submitted again."""
        self.heartbeats: list[JsonObject] = []
        self.cursor: str | None = None
        self.since = datetime.now(UTC)
        """When the account was leased for the first time."""
        self.moved: dict[str, str] = {}
        """The first thread of a conversation, by its present thread."""
        self.answering: dict[str, JsonObject] = {}
        """The address of the message that a butler is working on, by conversation."""
        self.blocked: set[str] = set()
        """Conversations to which nothing can be sent until somebody writes there again."""
        self.reasons: list[str] = []
        """The reported reasons why no replies are sent to a conversation."""
        self.receipts: list[str] = []
        """The reported outcomes of all replies."""
        self.posted, self.late = PostedRecord(), LateRecord()
        self.requests: list[str] = []
        self.told: list[bytes] = []
        """The bodies of the requests."""
        self.unavailable = False
        """Whether to answer only with `outage`."""
        self.closed: set[str] = set()
        """Paths that answer only with `outage`."""
        self.outage = 503
        self.refusal: Refusal = lambda _: None
        self.breaks_at: str | None = None
        """If set, a simulated defect: answer 500 to all requests that contain this text."""
        self.dies_at: tuple[str, bool] | None = None
        """The end of the path of the request at which the connector dies, and whether it is processed first."""
        self._clock, self._ttl_s = clock, ttl_s
        self._keys: dict[str, str] = {}
        self._outbox: dict[str, _Outgoing] = {}
        self._holder, self._lease_ends = "", 0.0
        self._lease = 0
        self._changed = asyncio.Event()

    def client(self, dead: asyncio.Event | None = None) -> httpx2.AsyncClient:
        """A client of this switchboard; once `dead` is set, its requests no longer arrive."""
        return httpx2.AsyncClient(transport=_Wire(self, dead or asyncio.Event()), base_url="http://switchboard.test")

    def reply(
        self,
        envelope: JsonObject,
        text: str,
        files: Sequence[tuple[str, bytes]] = (),
        choices: Sequence[tuple[str, str]] | None = None,
    ) -> str:
        """Let a butler answer an accepted message, with named files; returns the reply's id.

        `choices`: label and token of the buttons below.
        """
        event, sender = envelope["event"], envelope["sender"]["identity"]
        outbox_id = str(uuid4())
        self._outbox[outbox_id] = _Outgoing(
            {
                "outbox_id": outbox_id,
                "conversation": _conversation_of(envelope),
                "thread": event.get("external_thread_id"),
                "recipient": sender,
                "reply_to": event["external_event_id"],
                "text": text,
                "address": event.get("reply_address"),
                "files": [_describe_file(name, data) for name, data in files],
                "choices": None if choices is None else [{"label": one, "value": value} for one, value in choices],
            },
            self._clock(),
            [data for _, data in files],
        )
        self._changed.set()
        return outbox_id

    def outcome(self, outbox_id: str) -> str:
        """The outcome of a reply; empty until there is one."""
        return self._outbox[outbox_id].outcome

    def post(self, raw: bytes) -> None:
        """The platform posts an event to the server."""
        self.posted.keep(base64.b64encode(raw).decode("ascii"))
        self._changed.set()

    def resend(self, outbox_id: str) -> None:
        """An operator has a failed reply sent again."""
        self.blocked.discard(self._outbox[outbox_id].reply["conversation"])
        outgoing = self._outbox[outbox_id]
        outgoing.outcome = ""
        outgoing.parts = {index: part for index, part in outgoing.parts.items() if part["state"] == "sent"}
        self._changed.set()

    def parts(self, outbox_id: str) -> dict[int, JsonObject]:
        """The recorded parts of a reply, by index; a test may add those of an earlier process."""
        return self._outbox[outbox_id].parts

    def leases_end(self) -> None:
        """Expire the leases of all replies, so that begun parts are uncertain."""
        self._leases_end(list(self._outbox.values()))
        self._changed.set()

    def _leases_end(self, ended: list[_Outgoing]) -> None:
        for outgoing in ended:
            outgoing.leased = False
            for part in outgoing.parts.values():
                part["state"] = "uncertain" if part["state"] == "intent" else part["state"]

    def process_ended(self) -> None:
        """The connector has ended: end its leases of the account and of replies, so that another one may start."""
        self._holder, self.dies_at = "", None
        for outgoing in self._outbox.values():
            outgoing.leased = False

    async def handle(self, request: httpx2.Request, dead: asyncio.Event) -> httpx2.Response:
        """Answer one request, unless it is the one at which the connector dies."""
        content = await request.aread()
        await asyncio.sleep(0)  # as over a network, other tasks continue meanwhile
        if dead.is_set():
            raise httpx2.ConnectError("the connector is dead")
        self.requests.append(f"{request.method} {request.url.path}")
        self.told.append(content)
        dies = self.dies_at is not None and request.url.path.endswith(self.dies_at[0])
        lost, away = dies and self.dies_at is not None and not self.dies_at[1], self._is_away(request)
        answer = (
            (self.outage, _error_body("unavailable")) if lost or away else await self._take_request(request, content)
        )
        if dies:
            dead.set()
        if dead.is_set():
            raise httpx2.ReadError("the connector is dead")
        if (data := self._file_of_reply(request.url.path)) is not None and answer[0] == 404:
            return httpx2.Response(200, content=data)
        return httpx2.Response(answer[0], json=answer[1], headers={"retry-after": "0.1"} if away else None)

    def _file_of_reply(self, path: str) -> bytes | None:
        match path.split("/")[2:]:
            case ["outbox", outbox_id, "files", n]:
                return next(iter(self._outbox[outbox_id].files[int(n) :]), None)
        return None

    def lose_files(self, outbox_id: str, *others: bytes) -> None:
        """Replace the files of a reply with others."""
        self._outbox[outbox_id].files[:] = others

    def _is_away(self, request: httpx2.Request) -> bool:
        return self.unavailable or request.url.path in self.closed

    async def _take_request(self, request: httpx2.Request, content: bytes) -> Answer:
        if request.url.path == "/v1/blobs":
            return self._answer_upload(content, request.headers.get("content-type", ""))
        return await self._answer_request(request, json.loads(content or b"{}"))

    async def _answer_request(self, request: httpx2.Request, body: JsonObject) -> Answer:
        answer: Answer = (404, _error_body("not_found"))
        if self.breaks_at is not None and self.breaks_at in json.dumps(body):
            return 500, _error_body("internal_error")
        match request.method, request.url.path.split("/")[2:]:
            case "POST", ["connectors", "posted", "next"]:
                answer = await self._next_posted(body)
            case method, ["connectors", what]:
                answer = self._answer_account(method, what, body, request.url.params)
            case "POST", ["ingest", "files"]:
                answer = 200, {"reason": self._needs_no_files(body), "most_bytes": self.most_bytes}
            case "POST", ["ingest", "batch"]:
                answer = 200, {"results": [self._ingest_envelope(envelope) for envelope in body["envelopes"]]}
            case "POST", ["outbox", *path]:
                answer = await self._answer_outbox(path, body)
            case method, ["quarantine", *event_id]:
                answer = self._answer_quarantine(method, ["/".join(event_id)] if event_id else [], body)
        return answer

    async def _answer_outbox(self, path: Sequence[str], body: JsonObject) -> Answer:
        answer: Answer = (404, _error_body("not_found"))
        match path:
            case ["next"]:
                answer = await self._next(body)
            case ["late"]:
                answer = self._answer_late(body)
            case [outbox_id, "parts"]:
                answer = self._record_part(self._outbox[outbox_id], body)
            case [outbox_id, "receipt"]:
                answer = self._answer_receipt(self._outbox[outbox_id], body)
        return answer

    def _answer_account(self, method: str, what: str, body: JsonObject, asked: Mapping[str, str]) -> Answer:
        answer: Answer = (404, _error_body("not_found"))
        match method, what:
            case "POST", "lease":
                answer = self._answer_lease(body)
            case "DELETE", "lease":
                answer = self._answer_release(asked.get("lease"))
            case "PUT", "cursor":
                answer = self._answer_save(body)
            case "POST", "written" if self.writing is not None:
                answer = 200, {"texts": [self._written_message(name, *what) for name, what in self.writing.items()]}
            case "POST", "moves":
                answer = self._answer_move(body)
            case "POST", "posted":
                answer = self._answer_pushed(body)
            case "DELETE", "posted":
                answer = self._answer_settle(asked)
            case "POST", "heartbeat":
                self.heartbeats.append(body)
                answer = 200, {"status": "ok", "interval_s": 120}
        return answer

    def _answer_upload(self, content: bytes, media_type: str) -> Answer:
        if self.no_room is not None:
            return 429, {"error": {"code": "blob_quota", "message": self.no_room}}
        blob = sha256(content).hexdigest()
        self.blobs[blob] = content
        kind = sniff(content[:HEAD_BYTES], media_type).media_type
        return 201, {"blob": blob, "size_bytes": len(content), "media_type": kind}

    def _needs_no_files(self, envelope: JsonObject) -> str | None:
        if envelope["event"]["external_event_id"] in self._keys:
            return "known"
        return "stranger" if envelope["sender"]["identity"] in self.strangers else None

    def _answer_quarantine(self, method: str, named: list[str], body: JsonObject) -> Answer:
        match method, named:
            case "GET", []:
                return 200, {"events": [{"quarantine_id": one} for one in reversed(self.replays)]}
            case "GET", [event_id]:
                return 200, {"event_id": event_id, "raw": self.raw[event_id]}
            case "DELETE", [event_id]:
                del self.quarantined[event_id], self.raw[event_id]
            case _:
                event_id = str(body["event_id"])
                self.quarantined[event_id], self.raw[event_id] = body["reason"], body["raw"]
        self.replays = [one for one in self.replays if one != event_id]
        return 200, {}

    def _answer_lease(self, body: JsonObject) -> Answer:
        instance, answering = str(body["instance_id"]), bool(body["answering"])
        if self._holder not in {"", instance} and self._clock() < self._lease_ends:
            return 409, _error_body("account_held")
        if self._holder != instance:
            self._holder, self._lease = instance, self._lease + 1
        self._lease_ends = self._clock() + self._ttl_s
        if body.get("reconnected"):
            self._leases_end([one for one in self._outbox.values() if not one.parts])
        busy = [{"conversation": name, "address": address} for name, address in self.answering.items() if answering]
        account: JsonObject = {"cursor": self.cursor, "replays": len(self.replays), "moved": self.moved}
        account["since"] = self.since.isoformat()
        if self.heard is None and "heard" in body:
            return 422, _error_body("validation")
        if self.heard is not None:
            account["heard"] = self.heard = body.get("heard", self.heard)
        account |= {"answering": busy, "recent": list(map(self._recent_reply, self._outbox.values()))}
        account |= {"accepts": list(self.accepts)} if self.accepts else {}
        return 200, {"lease": self._lease, "ttl_s": self._ttl_s, **account}

    def _recent_reply(self, outgoing: _Outgoing) -> JsonObject:
        now, reply = self._clock(), outgoing.reply
        known = {name: reply[name] for name in ("outbox_id", "conversation", "recipient")}
        sent_s = None if outgoing.sent is None else now - outgoing.sent
        return {**known, "made_s": now - outgoing.made, "sent_s": sent_s, "failed": outgoing.failed}

    def _answer_release(self, lease: str | None) -> Answer:
        if lease != str(self._lease):
            return 409, _error_body("lease_lost")
        self._holder = ""
        return 200, {"status": "released"}

    def _answer_save(self, body: JsonObject) -> Answer:
        if body["lease"] != self._lease or self._clock() >= self._lease_ends:
            return 409, _error_body("lease_lost")
        self.cursor = body["cursor"]
        return 200, {"status": "saved"}

    def _written_message(self, conversation: str, number: int, text: str) -> JsonObject:
        address = self.answering.get(conversation, {})
        return {"conversation": conversation, "number": number, "text": text, "address": address}

    def _answer_move(self, body: JsonObject) -> Answer:
        if body["lease"] != self._lease:
            return 409, _error_body("lease_lost")
        old = str(body["old"])
        self.moved.setdefault(str(body["new"]), self.moved.get(old, old))
        return 200, {"status": "saved"}

    async def _next_posted(self, body: Mapping[str, Any]) -> Answer:
        with suppress(TimeoutError):
            async with asyncio.timeout(body["wait_s"]):
                while not self.posted.after(body["after"]):
                    self._changed.clear()
                    await self._changed.wait()
        return 200, {"events": self.posted.after(body["after"])}

    def _answer_pushed(self, body: JsonObject) -> Answer:
        self.posted.keep(body["raw"], body["mark"])
        self._changed.set()
        return 200, {"status": "kept"}

    def _answer_settle(self, asked: Mapping[str, str]) -> Answer:
        if asked["lease"] != str(self._lease):
            return 409, _error_body("lease_lost")
        self.posted.settle(int(asked["upto"]))
        return 200, {"status": "settled"}

    def _ingest_envelope(self, envelope: JsonObject) -> JsonObject:
        event, passages = envelope["event"], envelope["payload"].get("passages")
        if passages is not None and "passages" not in self.accepts:
            return _error_body("unknown_field")
        if (code := self.refusal(envelope) or _refusal_code(envelope)) is not None:
            return _error_body(code)
        if passages:
            envelope["payload"]["normalized_text"] = JOINT.join(one["text"] for one in passages)
        named = [one.get("storage_ref") for one in envelope["payload"]["attachments"]]
        if any(ref is not None and ref.removeprefix(PREFIX) not in self.blobs for ref in named):
            return _error_body("unknown_blob")
        key = event["external_event_id"]
        if known := self._keys.get(key):
            self.duplicates += 1
            return {"request_id": known, "status": "accepted", "duplicate": True}
        self._keys |= dict.fromkeys([key, *event.get("also", ())], str(uuid4()))
        self.accepted.append(envelope)
        self.blocked.discard(_conversation_of(envelope))
        return {"request_id": self._keys[key], "status": "accepted", "duplicate": False}

    async def _next(self, body: Mapping[str, Any]) -> Answer:
        if body["account_lease"] != self._lease:
            return 409, _error_body("lease_lost")
        ends = self._clock() + body["wait_s"]
        while not (due := self._due_replies()) and self._clock() < ends:
            self._changed.clear()
            soonest = min((some.due for some in self._outbox.values() if some.due > self._clock()), default=ends)
            await wait_at_most(max(min(soonest, ends) - self._clock(), 0.001), self._changed)
        for outgoing in due:
            outgoing.leased = True
            outgoing.lease += 1
            outgoing.until = self._clock() + float(body["lease_s"])
        return 200, {"replies": [self._show_reply(outgoing) for outgoing in due]}

    def _due_replies(self) -> list[_Outgoing]:
        """The first reply without an outcome in each conversation. Replies with expired leases are free again."""
        self._leases_end([some for some in self._outbox.values() if some.leased and some.until <= self._clock()])
        open_ones = [some for some in self._outbox.values() if not some.outcome]
        firsts = {some.reply["conversation"]: some for some in reversed(open_ones)}
        return [some for some in firsts.values() if not some.leased and some.due <= self._clock()]

    def _show_reply(self, outgoing: _Outgoing) -> JsonObject:
        unreachable = outgoing.reply["conversation"] in self.blocked
        state = {"lease": outgoing.lease, "parts": list(outgoing.parts.values()), "unreachable": unreachable}
        return {**outgoing.reply, **state}

    def _record_part(self, outgoing: _Outgoing, body: JsonObject) -> Answer:
        parts = outgoing.parts
        if not outgoing.leased or body["lease"] != outgoing.lease:
            return 409, _error_body("conflict")
        if body.get("platform_message_id") == "":
            return 422, _error_body("invalid_value")
        outgoing.until = self._clock() + _LEASE_S
        known = parts.get(body["part"], {}).get("state")
        if body["state"] == "later" and known in {"intent", None}:
            parts.pop(body["part"], None)
            return 200, {"state": "later", "lease_s": _LEASE_S}
        if known != "sent":
            parts[body["part"]] = {"age_s": 0.0, **body}
        return 200, {"state": parts[body["part"]]["state"], "lease_s": _LEASE_S}

    def _stop_conversation(self, conversation: str, because: str | None) -> None:
        if because is not None and conversation not in self.blocked:
            self.reasons.append(because)
        if because == "blocked":
            self.blocked.add(conversation)

    def _answer_late(self, body: JsonObject) -> Answer:
        """Reports are kept, as they may come before the receipt."""
        if not body["platform_message_id"] or datetime.fromisoformat(body["at"]).tzinfo is None:
            return 422, _error_body("invalid_value")
        self.late.reports.setdefault((body["platform_message_id"], body["at"]), body)
        for outgoing in self._outbox.values():
            self._fail_late(outgoing)
        return 200, {"state": None}

    def _fail_late(self, outgoing: _Outgoing) -> None:
        if outgoing.outcome == "sent" and (report := self.late.count_against(outgoing.parts.values())) is not None:
            outgoing.outcome = "failed"
            self.reasons.append(report.get("because") or "undelivered")
            if report.get("because") == "blocked":
                self.blocked.add(outgoing.reply["conversation"])

    def _answer_receipt(self, outgoing: _Outgoing, body: JsonObject) -> Answer:
        if body.get("platform_message_id") == "":
            return 422, _error_body("invalid_value")
        if not outgoing.leased or body["lease"] != outgoing.lease:
            return 409, _error_body("conflict")
        outcome = str(body["outcome"])
        self.receipts.append(outcome)
        self._stop_conversation(outgoing.reply["conversation"], body.get("because"))
        outgoing.leased = False
        outgoing.outcome = "" if outcome in {"later", "retryable"} else outcome
        outgoing.due = self._clock() + float(body.get("retry_after_s") or 0.0)
        outgoing.sent = self._clock() if outcome == "sent" else None
        outgoing.failed |= outcome == "failed"
        self._fail_late(outgoing)
        if not outgoing.outcome:
            outgoing.parts = {index: part for index, part in outgoing.parts.items() if part["state"] != "intent"}
        self._changed.set()
        return 200, {"state": outcome}


def _conversation_of(envelope: JsonObject) -> str:
    return str(envelope["event"].get("external_thread_id") or envelope["sender"]["identity"])


class _Wire(httpx2.AsyncBaseTransport):
    """The connection of one process."""

    def __init__(self, switchboard: ScriptedSwitchboard, dead: asyncio.Event) -> None:
        self._switchboard, self._dead = switchboard, dead

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return await self._switchboard.handle(request, self._dead)


def _refusal_code(envelope: JsonObject) -> str | None:
    """The code with which a switchboard would refuse it; None if it would not."""
    try:
        parse_envelope(envelope, now=datetime.now(UTC))
    except InvalidInput as error:
        return error.code
    return None


def _describe_file(name: str, data: bytes) -> JsonObject:
    """A file of a reply as the API lists it."""
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return {"filename": name, "media_type": kind, "size_bytes": len(data), "sha256": sha256(data).hexdigest()}


def _error_body(code: str) -> JsonObject:
    return {"error": {"code": code, "message": f"scripted: {code}"}}
