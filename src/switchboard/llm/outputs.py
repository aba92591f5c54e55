"""Parses the output of claude-code, codex, gemini-cli and opencode (a JSON object per line) as a `Reply`.

Called by `cli.py` with the complete or truncated standard output of an ended program, and by `running.py` with each
line as it arrives. In: text; out: a `Reply`; never raises. Pure.

The format of the lines was recorded from claude-code 2.1.330, codex 0.169.0, gemini-cli 0.61.0 and opencode 1.18.33.
Their exit codes are of no use here: a session without its MCP server, or with its call refused, ends with 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from switchboard.core.text.lenient import block_text, count, items, json_value, mapping, money, string, text_of_error
from switchboard.domain.llm import NO_USAGE, Reply, ToolCall, Usage
from switchboard.llm.answers import anthropic_usage
from switchboard.llm.port import CliKind

Line = Mapping[str, object]

_CONNECTED: Final = frozenset({"connected", "pending"})
_MOST_OPEN: Final = 20
"""Messages of which more may be told; they are told one after the other."""
_FAILED_STATES: Final = frozenset({"failed", "error"})


def read_output(kind: CliKind, output: str) -> Reply:
    """The reply of a program of this kind. Lines that are not a JSON object (banners, half a line) are skipped."""
    transcript = Transcript(kind)
    # Only a line feed ends a line: U+2028, U+0085 and the like may occur unescaped in JSON strings.
    for line in output.split("\n"):
        transcript.read(line)
    return transcript.reply()


class Transcript:
    """The output of a program of this kind so far, line by line."""

    def __init__(self, kind: CliKind) -> None:
        self._read = _READERS[kind]
        self._session = _Session()
        self.odd = ""
        """The first line that is no JSON object."""

    def read(self, line: str) -> None:
        """Read the next line."""
        value = json_value(line) if line.lstrip().startswith("{") else None
        if isinstance(value, Mapping):
            self._read(self._session, value)
        elif line.strip() and not self.odd:
            self.odd = line

    @property
    def saying(self) -> str:
        """The text of the message being written, or of the last one written."""
        return self._session.saying if self._session.in_pieces else self._session.text

    @property
    def usage(self) -> Usage:
        """The usage, as far as reported."""
        return self._session.spent

    def reply(self) -> Reply:
        """The reply so far."""
        return self._session.reply()


@dataclass
class _Session:
    """What has been read so far. Calls are kept by their id, in order; a repeated id is the same call."""

    text: str = ""
    saying: str = ""
    in_pieces: bool = False
    """Whether messages are told while they are written."""
    used: dict[str, Usage] = field(default_factory=dict)
    """By message, until the program tells the sum; `used_before` is the sum of earlier messages."""
    used_before: Usage = NO_USAGE
    calls: dict[str, ToolCall] = field(default_factory=dict)
    usage: Usage = NO_USAGE
    model: str | None = None
    errors: list[str] = field(default_factory=list)
    ended: str | None = None

    def call(self, call: ToolCall) -> None:
        self.calls[call.id or f"#{len(self.calls)}"] = call

    def result(self, call_id: object, result: object, *, ok: bool) -> None:
        """The result of a call. One without a call is ignored; a refused call stays refused, with its first reason."""
        call = self.calls.get(string(call_id))
        if call is not None and call.ok is not False:
            self.calls[string(call_id)] = replace(call, result=result, ok=ok)

    def error(self, value: object, fallback: str) -> None:
        self.errors.append(text_of_error(value) or fallback)

    def reply(self) -> Reply:
        calls, errors = tuple(self.calls.values()), tuple(self.errors)
        return Reply(self.text, calls, self.spent, self.model, errors, self.ended, by_program=True)

    @property
    def spent(self) -> Usage:
        return self.usage if self.usage.tokens else sum(self.used.values(), self.used_before)

    def use(self, message: str, usage: Usage) -> None:
        """The usage of a message, which may be reported several times."""
        self.used[message] = usage
        if len(self.used) > _MOST_OPEN:  # it is summed after every line
            self.used_before += self.used.pop(next(iter(self.used)))


def _claude(session: _Session, line: Line) -> None:
    kind = string(line.get("type"))
    message = mapping(line.get("message"))
    if kind == "system" and line.get("subtype") == "init":
        session.model = string(line.get("model")) or session.model
        _claude_servers(session, line)
    elif kind == "assistant":
        _claude_said(session, message)
    elif kind == "user":
        _claude_results(session, line, message)
    elif kind == "result":
        _claude_end(session, line)
    elif kind == "stream_event":
        _claude_piece(session, mapping(line.get("event")))


def _claude_piece(session: _Session, event: Line) -> None:
    session.in_pieces = True
    if event.get("type") == "message_start":
        session.saying = ""
    elif event.get("type") == "content_block_delta":
        session.saying += string(mapping(event.get("delta")).get("text"))


def _claude_servers(session: _Session, line: Line) -> None:
    """To this program, an unreachable server is not an error: the session continues without its tools."""
    for server in items(line.get("mcp_servers")):
        status = string(server.get("status"))
        if status not in _CONNECTED:
            session.errors.append(f"MCP server {string(server.get('name'))}: {status or 'unknown'}"[:500])


def _claude_said(session: _Session, message: Line) -> None:
    session.use(string(message.get("id")), anthropic_usage(mapping(message.get("usage"))))
    session.text = block_text(message.get("content")) or session.text
    for block in items(message.get("content")):
        if block.get("type") == "tool_use" and (name := string(block.get("name"))):
            call_id = string(block.get("id")) or None
            session.call(ToolCall(name, mapping(block.get("input")), id=call_id))


def _claude_results(session: _Session, line: Line, message: Line) -> None:
    blocks = [block for block in items(message.get("content")) if block.get("type") == "tool_result"]
    # One structured result per line: with several blocks it would be unclear which call it belongs to.
    structured = mapping(line.get("tool_use_result")).get("structuredContent") if len(blocks) == 1 else None
    for block in blocks:
        result = structured if structured is not None else block_text(block.get("content"))
        session.result(block.get("tool_use_id"), result, ok=block.get("is_error") is not True)


def _claude_end(session: _Session, line: Line) -> None:
    session.usage = anthropic_usage(mapping(line.get("usage")), money(line.get("total_cost_usd")))
    session.text = string(line.get("result")) or session.text
    subtype = string(line.get("subtype"))
    reason = "" if subtype.startswith("error") else string(line.get("stop_reason"))
    session.ended = reason or subtype or "result"
    if line.get("is_error") is True:
        session.error(line.get("result"), string(line.get("subtype")) or "error")
    for denial in items(line.get("permission_denials")):
        session.result(denial.get("tool_use_id"), "permission denied", ok=False)


def _codex(session: _Session, line: Line) -> None:
    kind, item = string(line.get("type")), mapping(line.get("item"))
    if kind in {"item.started", "item.updated", "item.completed"}:
        _codex_item(session, item, done=kind == "item.completed")
    elif kind == "turn.completed":
        usage = mapping(line.get("usage"))
        session.usage += Usage(
            count(usage.get("input_tokens")),
            count(usage.get("output_tokens")),
            cache_read=count(usage.get("cached_input_tokens")),
            cache_write=count(usage.get("cache_write_input_tokens")),
        )
        session.ended = "turn.completed"
    elif kind == "turn.failed":
        session.error(line.get("error"), "turn.failed")
        session.ended = "turn.failed"
    elif kind == "error":
        session.error(line.get("message"), "error")


def _codex_item(session: _Session, item: Line, *, done: bool) -> None:
    kind = item.get("type")
    if kind == "agent_message":
        session.text = string(item.get("text")) or session.text
    elif kind == "error" and done:
        session.error(item.get("message"), "error")
    elif kind == "mcp_tool_call" and (tool := string(item.get("tool"))):
        call_id, server = string(item.get("id")) or None, string(item.get("server")) or None
        ok, result = _codex_result(item) if done else (None, None)
        session.call(ToolCall(tool, mapping(item.get("arguments")), result, ok, call_id, server))


def _codex_result(item: Line) -> tuple[bool, object]:
    result = mapping(item.get("result"))
    refused = result.get("is_error") is True or result.get("isError") is True
    if item.get("status") != "completed" or item.get("error") or refused:
        return False, text_of_error(item.get("error")) or block_text(result.get("content"))
    structured = result.get("structured_content")
    return True, structured if structured is not None else block_text(result.get("content"))


def _gemini(session: _Session, line: Line) -> None:
    kind = string(line.get("type"))
    if kind == "init":
        session.model = string(line.get("model")) or session.model
    elif kind == "message" and line.get("role") == "assistant":
        said = string(line.get("content"))
        session.text = session.text + said if line.get("delta") is True else said
    elif kind == "error":
        session.error(line.get("message") or line.get("error"), "error")
    elif kind == "result":
        _gemini_end(session, line)
    else:
        _gemini_tool(session, kind, line)


def _gemini_tool(session: _Session, kind: str, line: Line) -> None:
    if kind == "tool_use" and (name := string(line.get("tool_name"))):
        session.text = ""  # text before a call is not the answer
        session.call(ToolCall(name, mapping(line.get("parameters")), id=string(line.get("tool_id")) or None))
    elif kind == "tool_result":
        ok = line.get("status") == "success"
        session.result(line.get("tool_id"), line.get("output") or text_of_error(line.get("error")), ok=ok)


def _gemini_end(session: _Session, line: Line) -> None:
    stats = mapping(line.get("stats"))
    session.usage = Usage(count(stats.get("input_tokens")), count(stats.get("output_tokens")))
    session.ended = string(line.get("status")) or "result"
    if line.get("status") != "success":
        session.error(line.get("error"), session.ended)


def _opencode(session: _Session, line: Line) -> None:
    kind, part = string(line.get("type")), mapping(line.get("part"))
    if kind == "tool_use":
        _opencode_call(session, part)
    elif kind == "text":
        session.text = string(part.get("text")) or session.text
    elif kind == "step_finish":
        _opencode_step(session, part)
    elif kind == "error":
        session.error(line.get("error"), "error")


def _opencode_call(session: _Session, part: Line) -> None:
    state = mapping(part.get("state"))
    status = string(state.get("status"))
    ok = True if status == "completed" else False if status in _FAILED_STATES else None
    result = state.get("output") if ok else text_of_error(state.get("error")) or None
    if tool := string(part.get("tool")):
        session.call(ToolCall(tool, mapping(state.get("input")), result, ok, string(part.get("callID")) or None))


def _opencode_step(session: _Session, part: Line) -> None:
    tokens = mapping(part.get("tokens"))
    cache = mapping(tokens.get("cache"))
    read, written = count(cache.get("read")), count(cache.get("write"))
    session.usage += Usage(
        count(tokens.get("input")) + read + written,
        sum(map(count, (tokens.get("output"), tokens.get("reasoning")))),
        money(part.get("cost")),
        read,
        written,
    )
    session.ended = string(part.get("reason")) or "step_finish"


_READERS: Final[Mapping[CliKind, Callable[[_Session, Line], None]]] = {
    "claude-code": _claude,
    "codex": _codex,
    "gemini-cli": _gemini,
    "opencode": _opencode,
}
