"""Parses the answers of providers, in three dialects, as a `Reply`. Pure.

`api.py` calls `read_answer` with the JSON of a response; it returns a `Reply` or raises the corresponding
`ModelFailure`. A call in it is only a request: it has no result yet. Next: `domain/llm.py`.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from msgspec import structs

from switchboard.core.replies import call_of
from switchboard.core.text.lenient import block_text, clean, count, items, json_value, mapping, sanitize_error, string
from switchboard.domain.llm import ModelFailure, Reply, Request, ToolCall, Usage
from switchboard.llm.call_form import unwrap_reply
from switchboard.llm.json_form import calls_described
from switchboard.llm.port import ApiKind
from switchboard.llm.speech import Speech, SpeechRules, speech_of
from switchboard.llm.text_calls import TextCalls, is_quoted, read_calls
from switchboard.llm.web import status_failure

Document = Mapping[str, object]

MALFORMED: Final = "malformed"
"""The key under which arguments that are no object of JSON go back to models that take nothing else."""

_PREFIX: Final = "functions."
"""The namespace that some models write before the name of a tool."""
_CODES: Final[Mapping[str, int]] = {
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "overloaded_error": 529,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "invalid_request_error": 400,
}
_STOPS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("stop", "end_turn", "stop_sequence", "completed"), "end"),
    **dict.fromkeys(("tool_use", "function_call"), "tool_calls"),
    **dict.fromkeys(("max_tokens", "max_output_tokens"), "length"),
    **dict.fromkeys(("content_filter", "refusal", "safety"), "refused"),
    "model_context_window_exceeded": "context_too_long",
}


def read_answer(
    kind: ApiKind, body: str, request: Request, *, local: bool = False, thinks: bool = False, formed: bool = False
) -> Reply:
    """The reply in the body of a response; see `read_document`. Also raises ModelFailure if it is not JSON."""
    document = json_value(body)
    if not isinstance(document, Mapping):
        raise ModelFailure("garbage", f"the answer is not a JSON object: {clean(body[:100])!r}")
    return read_document(kind, document, request, local=local, thinks=thinks, formed=formed)


def read_document(
    kind: ApiKind,
    document: Document,
    request: Request,
    *,
    local: bool = False,
    thinks: bool = False,
    formed: bool = False,
) -> Reply:
    """The reply in a response.

    Of a `local` model, the forced tool was requested as JSON in the text, and an answer that is nothing but calls of
    offered tools makes these calls. `thinks`: its template may have written the beginning of the thinking. `formed`: it
    was asked for in the form of `call_form.py`.

    Raises ModelFailure: `garbage` if it is not an answer or was cut off, `refused`, `context_too_long`, or the error in
    the body. Calls of an answer that was cut off, or that was to have none, are dropped: they must not run.
    """
    if document.get("error"):
        raise told_in_the_body(document, json.dumps(document))
    reply, refusal = _READERS[kind](document)
    if formed:
        reply = unwrap_reply(reply, thinks=thinks)
        if is_quoted(reply.calls, "", [*_read_by_model(request)]):
            reply = replace(reply, calls=(), unmade="as_text")
    said = speech_of(reply.text, rules_of(request, local=local, thinks=thinks))
    calls = reply.calls or (calls_described(said.text, request) if local else ())
    reply = replace(reply, text=said.text, thought=reply.thought or said.thought, calls=calls)
    reply = replace(reply, stop_reason=_STOPS.get(reply.stop_reason or "", reply.stop_reason))
    if not reply.calls and not request.force:
        reply = _with_text_calls(reply, said, request, carried_out=local)
    if reply.calls and reply.stop_reason == "end":
        reply = replace(reply, stop_reason="tool_calls")
    _check_end(reply, refusal, whole=request.whole)
    if reply.calls and reply.stop_reason == "length":
        return replace(reply, calls=(), blocks=(), unmade="cut_off")
    if reply.calls and request.no_calls:
        return replace(reply, calls=(), blocks=())
    return _assign_call_ids(replace(reply, calls=tuple(_reset_call(call, request) for call in reply.calls)), request)


def rules_of(request: Request, *, local: bool, thinks: bool) -> SpeechRules:
    """How the text of an answer to this request is read."""
    return SpeechRules(local, thinks, tuple(tool.name for tool in request.tools))


def _with_text_calls(reply: Reply, said: Speech, request: Request, *, carried_out: bool) -> Reply:
    """The reply with the calls of which its text consists; if they are not to be made, it says so."""
    found = TextCalls((), said.text) if said.called else None
    found = found or read_calls(said.text, request.tools, said.calls_at)
    if found is None:
        return reply
    if reply.stop_reason == "length":
        return replace(reply, text=found.prose, unmade="cut_off")
    made = carried_out and found.calls and not request.no_calls
    if made and not is_quoted(found.calls, said.text, [*_read_by_model(request)]):
        return replace(reply, text="", calls=found.calls, blocks=())
    return replace(reply, text=found.prose, unmade="as_text")


def _read_by_model(request: Request) -> Iterator[str]:
    """What others have written of the request."""
    for message in request.messages:
        if message.role == "user":
            yield message.text
            yield from (result.text for result in message.results)


def told_in_the_body(document: Document, body: str) -> ModelFailure:
    """An error with status 200: sent by gateways, by the Responses API for failures while answering, and in streams."""
    error = mapping(document.get("error")) or document
    told = (string(error.get(name)) for name in ("code", "type"))
    code = count(error.get("code")) or next((_CODES[one] for one in told if one in _CODES), 500)
    return status_failure(code, {}, body)


def _assign_call_ids(reply: Reply, request: Request) -> Reply:
    """Give every call an id, always the same for this request and reply: some servers send none."""
    calls: list[ToolCall] = []
    given = {call.id for call in reply.calls}
    for n, call in enumerate(reply.calls):
        taken = call.id is None or call.id in {one.id for one in calls}
        ours = (f"call_{len(request.messages)}_{m}" for m in itertools.count(n))
        calls.append(structs.replace(call, id=next(one for one in ours if one not in given)) if taken else call)
        given.add(calls[-1].id)
    if tuple(calls) == reply.calls:
        return reply
    return replace(reply, calls=tuple(calls), blocks=())  # blocks had the ids before


def _check_end(reply: Reply, refusal: str, *, whole: bool) -> None:
    if reply.stop_reason == "context_too_long":
        raise ModelFailure("context_too_long", "the context window is exceeded", reply=reply)
    if reply.stop_reason == "length" and whole:
        # Even if a call is complete: later ones are lost. The long answer was caused by the input, which strangers
        # write, so it is no reason to mistrust the model for other messages.
        raise ModelFailure("garbage", "the answer was cut off at its limit", alive=True, reply=reply)
    if reply.stop_reason == "refused" or (refusal and not reply.calls):
        raise ModelFailure("refused", sanitize_error(refusal) or "the provider's filter ended the answer", reply=reply)


def _reset_call(call: ToolCall, request: Request) -> ToolCall:
    """A pending call, whatever status the provider reports, with the name under which its tool was offered."""
    name = call.name.strip() or call.name
    if name not in (tool.name for tool in request.tools):
        name = name.removeprefix(_PREFIX).strip() or name
    return structs.replace(call, name=name, ok=None, result=None)


def _chat(document: Document) -> tuple[Reply, str]:
    choice = next(iter(items(document.get("choices"))), None)
    if choice is None:
        raise ModelFailure("garbage", "the answer has no choices")
    message = mapping(choice.get("message"))
    reply = Reply(
        text=block_text(message.get("content")),
        calls=_calls(items(message.get("tool_calls"))) or _calls([{"function": mapping(message.get("function_call"))}]),
        usage=_openai_usage(mapping(document.get("usage")), "prompt", "completion"),
        model=string(document.get("model")) or None,
        stop_reason=string(choice.get("finish_reason")) or None,
        thought=bool(message.get("reasoning_content") or message.get("reasoning"))
        or _has_reasoning_tokens(document, "completion"),
    )
    return reply, string(message.get("refusal"))


def _of_type(output: Sequence[Document], kind: str) -> list[Document]:
    return [item for item in output if item.get("type") == kind]


def _responses(document: Document) -> tuple[Reply, str]:
    if not isinstance(document.get("output"), list):
        raise ModelFailure("garbage", "the answer has no output")
    output = list(items(document.get("output")))
    said = _of_type(output, "message")
    blocks = [block for item in said for block in items(item.get("content"))]
    why = string(mapping(document.get("incomplete_details")).get("reason"))
    reply = Reply(
        text="".join(string(block.get("text")) for block in blocks),
        calls=_calls(_of_type(output, "function_call")),
        usage=_openai_usage(mapping(document.get("usage")), "input", "output"),
        model=string(document.get("model")) or None,
        stop_reason=why or string(document.get("status")) or None,
        thought=bool(_of_type(output, "reasoning")) or _has_reasoning_tokens(document, "output"),
        blocks=tuple(output),
    )
    return reply, "".join(string(block.get("refusal")) for block in blocks)


def _has_reasoning_tokens(document: Document, said: str) -> bool:
    """Whether tokens of reasoning are reported."""
    details = mapping(mapping(document.get("usage")).get(f"{said}_tokens_details"))
    return count(details.get("reasoning_tokens")) > 0


def _openai_usage(usage: Document, asked: str, said: str) -> Usage:
    details = mapping(usage.get(f"{asked}_tokens_details"))
    read, written = count(details.get("cached_tokens")), count(details.get("cache_write_tokens"))
    tokens = count(usage.get(f"{asked}_tokens")), count(usage.get(f"{said}_tokens"))
    return Usage(*tokens, cache_read=read, cache_write=written)


def _anthropic(document: Document) -> tuple[Reply, str]:
    if not isinstance(document.get("content"), list):
        raise ModelFailure("garbage", "the answer has no content")
    blocks = list(items(document.get("content")))
    reply = Reply(
        text="".join(string(block.get("text")) for block in blocks if block.get("type") == "text"),
        calls=_calls(block for block in blocks if block.get("type") == "tool_use"),
        usage=anthropic_usage(mapping(document.get("usage"))),
        model=string(document.get("model")) or None,
        stop_reason=string(document.get("stop_reason")) or None,
        thought=any("thinking" in string(block.get("type")) for block in blocks),
        blocks=tuple(map(_returnable, blocks)),
    )
    return reply, ""


def _returnable(block: Document) -> Document:
    """Only an object is accepted back as the input of a call."""
    text = block.get("input")
    if not isinstance(text, str):
        return block
    return {**block, "input": {MALFORMED: text} if text.strip() else {}}


def anthropic_usage(usage: Document, cost: float | None = None) -> Usage:
    """Its `input_tokens` exclude the cached ones."""
    read, written = count(usage.get("cache_read_input_tokens")), count(usage.get("cache_creation_input_tokens"))
    asked = count(usage.get("input_tokens")) + read + written
    return Usage(asked, count(usage.get("output_tokens")), cost, read, written)


def _calls(raw: Iterable[Document]) -> tuple[ToolCall, ...]:
    return tuple(call for one in raw if (call := call_of(one)) is not None)


_READERS: Final[Mapping[ApiKind, Callable[[Document], tuple[Reply, str]]]] = {
    "openai": _chat,
    "openai-responses": _responses,
    "anthropic": _anthropic,
}
