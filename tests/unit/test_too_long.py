"""How servers say that a request is too long, and how much they say they read: recorded words of real ones."""

from __future__ import annotations

import json
from typing import Final

import pytest

from switchboard.llm.web import status_failure

LLAMA: Final = {
    "error": {
        "code": 400,
        "message": "the request exceeds the available context size, try increasing it",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": 5013,
        "n_ctx": 4096,
    }
}
TOO_LONG: Final[list[tuple[int, object, int | None]]] = [
    (400, LLAMA, 4096),
    (500, LLAMA, 4096),
    (200, LLAMA, 4096),
    (400, "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens.", 8192),
    (500, "This model's maximum context length is 4096 tokens. However, your messages resulted in 5000 tokens.", 4096),
    (422, "The decoder prompt (length 5000) is longer than the maximum model length of 4096.", 4096),
    (400, "Trying to keep the first 5008 tokens when context the overflows. However, the model is loaded with context "
          "length of only 4096 tokens, which is not enough.", 4096),
    (500, "The number of tokens to keep from the initial prompt is greater than the context length "
          "(n_keep: 5008>= n_ctx: 4096)", 4096),
    (500, "input length exceeds the context length", None),
    (400, "prompt too long; exceeded max context length by 904 tokens", None),
    (413, "Request too large", None),
    (400, "prompt is too long: 210000 tokens > 200000 maximum", 200_000),
    (400, "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease them", 200_000),
    (400, "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", 1_048_576),
    (422, "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Too many tokens", 4096),
    (400, "Prompt contains 40000 tokens, too large for model with 32768 maximum context length", 32_768),
    (500, "input is too large to process. increase the physical batch size", None),
    (503, "request (5013 tokens) exceeds the available context size (4096 tokens)", None),
    *((400, f"The request exceeds the maximum context length of 131{mark}072 tokens. You requested 140000.", 131_072)
      for mark in ",._\u2009\u202f\u00a0"),
    (400, "max_tokens is too large: 32000. This model's maximum context length is 8192 tokens", 8192),
    (400, "The model 'big one' can't read this: its maximum context length is 8192 tokens.", 8192),
    (422, {"detail": [{"type": "value_error", "msg": "prompt is too long: 9000 tokens > 8192", "input": "hi"}]}, 8192),
    (422, {"detail": "the prompt is too long"}, None),
    (400, {"object": "error", "message": "maximum context length is 8192 tokens"}, 8192),
]  # fmt: skip
NOT_TOO_LONG: Final[list[tuple[int, str, str]]] = [
    (429, "Rate limit reached: tokens per minute exceeded, limit 6000", "rate_limited"),
    (402, "You exceeded your token quota", "rate_limited"),
    (401, "your token has exceeded its lifetime", "auth"),
    (500, "the service token was exceeded", "unavailable"),
    (503, "overloaded", "unavailable"),
    (500, "context canceled", "unavailable"),
    (500, "x" * 200_000 + " n_ctx: 4096", "unavailable"),
    (400, "messages: at least one is required", "defect"),
    (400, "max_tokens must be <= 4096, exceeds token limit", "defect"),
    (400, "max_completion_tokens exceeds the token limit for this key: max 1000", "defect"),
    (400, "max_tokens: 128000 > 64000, which is the maximum allowed number of output tokens", "defect"),
    (400, "string too long. Expected a string with maximum length 64, but got input.call_id too long (id)", "defect"),
    (400, "Invalid 'input[3].name': string too long. Expected maximum length 64, got 70", "defect"),
    (400, "Invalid type for input: context_window_size unknown field", "defect"),
    (400, "tools: too many tokens in image 3; image exceeds 8000 tokens", "defect"),
    (429, "too many tokens", "rate_limited"),
]
ECHO: Final = "well, it's so: 'the prompt is too long' exceeds the context length, n_ctx: 300"
"""What a person may write, and a server may repeat."""
ECHOED: Final[list[tuple[int, object]]] = [
    (422, {"detail": [{"loc": ["body", "messages", 1], "msg": "Value error, not valid", "input": ECHO}]}),
    (400, {"error": {"message": f"Invalid 'messages[1].content': '{ECHO}'", "code": "invalid_request_error"}}),
    (400, {"error": {"message": f'not valid: "{ECHO}"', "param": ECHO}}),
    (400, {"error": {"message": f'not valid: "{ECHO}'}}),
    (500, {"error": {"message": f"template error near '{ECHO}'"}}),
    (500, {"error": "internal", "request": {"messages": [ECHO]}}),
]


@pytest.mark.parametrize(("status", "said", "limit"), TOO_LONG)
def test_a_request_that_is_too_long_is_known_by_any_status(status: int, said: object, limit: int | None) -> None:
    failure = status_failure(status, {}, json.dumps({"error": {"message": said}} if isinstance(said, str) else said))
    assert (failure.kind, failure.limit, failure.alive, failure.retryable) == ("context_too_long", limit, True, False)
    assert failure.certain == (said != "Request too large"), "which may be about bytes"


@pytest.mark.parametrize(("status", "said", "kind"), NOT_TOO_LONG)
def test_words_about_other_limits_are_not_taken_for_it(status: int, said: str, kind: str) -> None:
    assert status_failure(status, {}, json.dumps({"error": {"message": said}})).kind == kind


@pytest.mark.parametrize(("status", "document"), ECHOED)
def test_what_a_server_repeats_of_a_request_is_not_its_own_word(status: int, document: object) -> None:
    failure = status_failure(status, {}, json.dumps(document))
    assert (failure.kind, failure.limit) == ("unavailable" if status == 500 else "defect", None)
