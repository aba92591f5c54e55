"""Rejects what strict providers reject, in their own words; and cuts off what some servers silently drop.

`endpoints.py` calls `check_strictly` with every body if the server is `strict`, and `cut_head` if it has a `context`.
Pure. For Gemini there are no rules here beyond `dialect.check_pairs`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

from msgspec.structs import replace

from switchboard.domain.json_values import JsonMapping
from switchboard.testing.scripted_llm.answer import seal
from switchboard.testing.scripted_llm.dialect import BadRequest, blocks_of
from switchboard.testing.scripted_llm.request import Conversation, Dialect, Said

Thought = Callable[[int], bool]
"""Whether the answer with this number began with thinking, which must be sent back with its calls."""

_MOST_CACHED: Final = 4
_MOST_IMAGE: Final = 5_242_880
_CHARACTERS_PER_TOKEN: Final = 4


def check_strictly(dialect: Dialect, body: JsonMapping, thought: Thought) -> None:
    """Raises BadRequest with the provider's message."""
    if dialect in _CHECKS:
        _CHECKS[dialect](body, thought)


# Anthropic -----------------------------------------------------------------------------------------------------------


def _messages(body: JsonMapping, thought: Thought) -> None:
    said = [(str(one["role"]), blocks_of(one["content"])) for one in body["messages"]]
    _check_roles(said)
    _check_cache(body, said)
    for n, (role, blocks) in enumerate(said):
        _check_blocks(n, blocks)
        before = said[n - 1][1] if n else []
        _check_results(n, blocks, _ids(before, "tool_use", "id"))
        after = said[n + 1][1] if n + 1 < len(said) else []
        if role == "assistant":
            _check_answered(n, blocks, after)
    _check_thinking(said, thought)
    if not body.get("tools") and any(block["type"].startswith("tool_") for _, blocks in said for block in blocks):
        raise BadRequest("Requests which include `tool_use` or `tool_result` blocks must define tools")


def _check_roles(said: Sequence[tuple[str, list[JsonMapping]]]) -> None:
    if not said or said[0][0] != "user":
        raise BadRequest('messages: first message must use the "user" role')
    for (earlier, _), (role, _) in pairwise(said):
        if earlier == role:
            raise BadRequest(
                'messages: roles must alternate between "user" and "assistant", '
                f'but found multiple "{role}" roles in a row'
            )
    if said[-1][0] != "user":
        raise BadRequest(
            "This model does not support assistant message prefill. The conversation must end with a user message."
        )


def _check_blocks(n: int, blocks: Sequence[JsonMapping]) -> None:
    if not blocks:
        raise BadRequest(f"messages.{n}: all messages must have non-empty content")
    for i, block in enumerate(blocks):
        _check_block(f"messages.{n}.content.{i}", block)


def _check_block(at: str, block: JsonMapping) -> None:
    if block["type"] == "text" and not block["text"].strip():
        raise BadRequest("messages: text content blocks must contain non-whitespace text")
    if block["type"] == "thinking" and not _has_valid_seal(block["signature"], block["thinking"]):
        raise BadRequest(f"{at}: Invalid `signature` in `thinking` block")
    if block["type"] == "tool_use" and not isinstance(block["input"], dict):
        raise BadRequest(f"{at}.tool_use.input: Input should be a valid dictionary")
    if block["type"] == "image" and (size := len(block["source"]["data"])) > _MOST_IMAGE:
        raise BadRequest(f"{at}.image.source.base64: image exceeds 5 MB maximum: {size} bytes > {_MOST_IMAGE} bytes")


def _check_results(n: int, blocks: Sequence[JsonMapping], called: Sequence[str]) -> None:
    seen: set[str] = set()
    for i, block in enumerate(blocks):
        if block["type"] != "tool_result":
            continue
        key, at = block["tool_use_id"], f"messages.{n}.content.{i}"
        if key in seen:
            raise BadRequest(
                f"{at}: each tool_use must have a single result. Found multiple `tool_result` blocks with id: {key}"
            )
        if key not in called:
            raise BadRequest(
                f"{at}: unexpected `tool_use_id` found in `tool_result` blocks: {key}. Each `tool_result` block must "
                "have a corresponding `tool_use` block in the previous message."
            )
        seen.add(key)


def _check_answered(n: int, blocks: Sequence[JsonMapping], after: Sequence[JsonMapping]) -> None:
    """The results must come first in the next message: those after a text are ignored."""
    called = _ids(blocks, "tool_use", "id")
    if len(set(called)) < len(called):
        raise BadRequest(f"messages.{n}: `tool_use` ids must be unique")
    first = next((i for i, block in enumerate(after) if block["type"] != "tool_result"), len(after))
    missing = [key for key in called if key not in _ids(after[:first], "tool_result", "tool_use_id")]
    if missing:
        raise BadRequest(
            f"messages.{n}: `tool_use` ids were found without `tool_result` blocks immediately after: "
            f"{', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` block in the next "
            "message."
        )


def _check_thinking(said: Sequence[tuple[str, list[JsonMapping]]], thought: Thought) -> None:
    """In the current turn, that is, since the person's last message, calls must come back after their thinking."""
    spoken = [n for n, (role, blocks) in enumerate(said) if role == "user" and _spoke(blocks)]
    for n in range(spoken[-1] + 1 if spoken else 0, len(said)):
        blocks = said[n][1]
        if blocks[0]["type"] != "thinking" and any(map(thought, map(_number, _ids(blocks, "tool_use", "id")))):
            raise BadRequest(
                f"messages.{n}.content.0.type: Expected `thinking` or `redacted_thinking`, but found "
                f"`{blocks[0]['type']}`. When `thinking` is enabled, a final `assistant` message must start with a "
                "thinking block (preceeding the lastmost set of `tool_use` and `tool_result` blocks)."
            )


def _check_cache(body: JsonMapping, said: Sequence[tuple[str, list[JsonMapping]]]) -> None:
    blocks = [*blocks_of(body.get("system")), *(body.get("tools") or ()), *(one for _, some in said for one in some)]
    marked = sum("cache_control" in block for block in blocks)
    if marked > _MOST_CACHED:
        raise BadRequest(f"A maximum of {_MOST_CACHED} blocks with cache_control may be provided. Found {marked}.")
    if any("cache_control" in block for block in blocks if block.get("type") == "thinking"):
        raise BadRequest("cache_control: Extra inputs are not permitted")


def _spoke(blocks: Iterable[JsonMapping]) -> bool:
    return any(block["type"] != "tool_result" for block in blocks)


def _ids(blocks: Iterable[JsonMapping], kind: str, key: str) -> list[str]:
    return [block[key] for block in blocks if block["type"] == kind]


# OpenAI chat ---------------------------------------------------------------------------------------------------------


def _chat(body: JsonMapping, _: Thought) -> None:
    waiting: list[str] = []
    before = "system"
    for n, message in enumerate(body["messages"]):
        role = str(message["role"])
        if role == "tool":
            _take_result(waiting, message)
            continue
        if waiting:
            raise BadRequest(_UNANSWERED + ", ".join(waiting))
        _check_message(n, message, before)
        waiting = [call["id"] for call in message.get("tool_calls") or ()]
        before = "results" if waiting else role
    if waiting:
        raise BadRequest(_UNANSWERED + ", ".join(waiting))


def _take_result(waiting: list[str], message: JsonMapping) -> None:
    if message["tool_call_id"] not in waiting:
        raise BadRequest(
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
        )
    waiting.remove(message["tool_call_id"])


def _check_message(n: int, message: JsonMapping, before: str) -> None:
    role = str(message["role"])
    if role == "system" and n:
        raise BadRequest("System message must be at the beginning.")
    if (role == "assistant" and before not in {"user", "results"}) or role == before == "user":
        # OpenAI accepts this, but the templates of many local models do not.
        raise BadRequest(
            "After the optional system message, conversation roles must alternate user/assistant/user/assistant/..."
        )
    if not message.get("content") and not message.get("tool_calls"):
        raise BadRequest(f"Invalid value for 'content': expected a string, got null. (messages.[{n}].content)")
    for name in ("reasoning_content", "reasoning"):
        if name in message:
            raise BadRequest(f"Additional properties are not allowed ('{name}' was unexpected) - 'messages.{n}'")


_UNANSWERED: Final = (
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
    "The following tool_call_ids did not have response messages: "
)


# OpenAI Responses ----------------------------------------------------------------------------------------------------


def _responses(body: JsonMapping, thought: Thought) -> None:
    given = body["input"]
    items: list[JsonMapping] = given if isinstance(given, list) else []
    called: list[str] = []
    answered: set[str] = set()
    for n, item in enumerate(items):
        match item.get("type", "message"):
            case "reasoning":
                _check_reasoning(item, items[n + 1 :], stored=body.get("store", True))
            case "function_call":
                _check_call(item, items[:n], thought)
                called.append(item["call_id"])
            case "function_call_output":
                if item["call_id"] not in called:
                    raise BadRequest(f"No tool call found for function call output with call_id {item['call_id']}.")
                answered.add(item["call_id"])
            case "message" if set(called) - answered:
                break
    missing = [key for key in called if key not in answered]
    if missing:
        raise BadRequest(f"No tool output found for function call {missing[0]}.")


def _check_reasoning(item: JsonMapping, rest: Sequence[JsonMapping], *, stored: bool) -> None:
    sealed = item.get("encrypted_content")
    if sealed is None and not stored:
        raise BadRequest(
            f"Item with id '{item['id']}' not found. Items are not persisted when `store` is set to false. Try again "
            "with `store` set to true, or remove this item from your input."
        )
    if sealed is not None and not _has_valid_seal(sealed, "".join(part["text"] for part in item["summary"])):
        raise BadRequest(
            f"The encrypted content {sealed[:8]}... could not be verified. Reason: Encrypted content could not be "
            "decrypted or parsed."
        )
    if not rest or _number(rest[0].get("id", "")) != _number(item["id"]):
        raise BadRequest(f"Item '{item['id']}' of type 'reasoning' was provided without its required following item.")


def _check_call(item: JsonMapping, earlier: Sequence[JsonMapping], thought: Thought) -> None:
    key = item.get("id", "")
    reasoning = f"rs_{_number(key)}"
    if thought(_number(key)) and not any(one.get("id") == reasoning for one in earlier):
        raise BadRequest(
            f"Item '{key}' of type 'function_call' was provided without its required 'reasoning' item: '{reasoning}'."
        )


def _number(key: str) -> int:
    """The number of the answer that contained this id; 0 for ids that are not ours."""
    parts = key.split("_")
    return int(parts[1]) if len(parts) > 1 and parts[0] in _OURS and parts[1].isdecimal() else 0


_OURS: Final = frozenset({"toolu", "rs", "msg", "fc"})


def _has_valid_seal(sealed: str, text: str) -> bool:
    number = sealed.partition(".")[0]
    return number.isdecimal() and sealed == seal(int(number), text)


_CHECKS: Final[Mapping[Dialect, Callable[[JsonMapping, Thought], None]]] = {
    "openai-chat": _chat,
    "openai-responses": _responses,
    "anthropic": _messages,
}


# A short context -----------------------------------------------------------------------------------------------------


def cut_head(conversation: Conversation, context: int) -> Conversation:
    """The end of a conversation that fits into `context` tokens; the rest is silently lost. A token is 4 characters."""
    left = context * _CHARACTERS_PER_TOKEN
    kept: list[Said] = []
    for said in reversed(conversation.messages):
        if left <= 0:
            break
        kept.append(replace(said, text=said.text[-left:]))
        left -= len(said.text)
    return replace(conversation, messages=tuple(reversed(kept)))
