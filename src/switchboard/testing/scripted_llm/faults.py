"""Deliberate faults, as values. Each is the `fault` of a reply; JSON distinguishes them by `kind`.

`script.py` contains them; `spoil.py` applies those that change the model's output, `endpoints.py` those of the wire.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Where = Literal["start", "middle"]
"""Before any answer, or after half of the stream. The middle of a reply that is not streamed is that of its body."""


class _Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    pass


class Status(_Fault, frozen=True, tag="status"):
    """An error of the provider, in its own format: 401, 429, 500, 529… In the middle of a stream: its error event.

    `retry_after` (seconds) goes into the header of that name.
    """

    status: int
    retry_after: float | None = None
    message: str = "scripted error"
    at: Where = "start"


class Disconnect(_Fault, frozen=True, tag="disconnect"):
    """The connection is reset without an answer. (To refuse connections, use `ScriptedLlm.closed`.)"""


class Hang(_Fault, frozen=True, tag="hang"):
    """Nothing more is sent until `gate` is released (then all is sent as usual) or the client disconnects."""

    gate: str = "hang"
    at: Where = "start"


class Cut(_Fault, frozen=True, tag="cut"):
    """The connection ends after half of the events, or of the body; or after `after` bytes of it.

    With `quiet` the part that was sent looks like a whole body, as some proxies make it look.
    """

    after: int | None = None
    quiet: bool = False


class Garbage(_Fault, frozen=True, tag="garbage"):
    """Status 200 with invalid JSON, as the body or as the data of the first event."""

    text: str = '{"choices": [{"mess'


class Empty(_Fault, frozen=True, tag="empty"):
    """Status 200, the right content type, no body."""


class ContentType(_Fault, frozen=True, tag="content_type"):
    """Status 200 and a page instead of the API's answer, as proxies and captive portals send it."""

    media_type: str = "text/html"
    text: str = "<html><body>It works!</body></html>"


class Slow(_Fault, frozen=True, tag="slow"):
    """A pause before every event of the stream, or before the body."""

    pause_s: float


class WrongTool(_Fault, frozen=True, tag="wrong_tool"):
    """Each call goes to another tool that was offered."""


class UnknownTool(_Fault, frozen=True, tag="unknown_tool"):
    """Each call goes to a tool that nobody offered."""

    name: str = "no_such_tool"


class TwoTools(_Fault, frozen=True, tag="two_tools"):
    """Each call is made twice."""


class WithoutIds(_Fault, frozen=True, tag="without_ids"):
    """Calls have no id, as some local servers send them; only in OpenAI chat."""


class HugeText(_Fault, frozen=True, tag="huge_text"):
    """The text grows to this many characters."""

    characters: int = 1_000_000


class SpeechInSilence(_Fault, frozen=True, tag="speech_in_silence"):
    """A transcript ends with what nobody said, as Whisper writes where it hears nothing; it says that it is unsure."""

    text: str = "Thank you for watching!"


Habit = Literal[
    "no_done",  # the stream ends without saying so, after the reason for its end
    "keep_alive",  # comments, and events without data or with `null`
    "no_blank_line",  # the last event ends with the body
    "json_type",  # a stream as `application/json`
    "no_type",  # a body without a content type
    "whole",  # the answer in one piece as `text/event-stream`
    "name_repeated",  # in every piece of a call
    "name_again",  # in the last piece of a call
    "name_in_pieces",
    "name_padded",
    "name_prefixed",  # with `functions.`
    "no_index",  # nor an id; each call is one piece
    "one_index",  # for all calls
    "function_call",  # the only call, as it was sent before there were several
]


class Habits(_Fault, frozen=True, tag="habits"):
    """Habits of servers that are no failure. Those of calls are of OpenAI's chat only."""

    habits: tuple[Habit, ...]


TextForm = Literal["json", "fenced", "tool_call", "mistral", "function", "parameters", "pythonic", "channel"]


class CallsAsText(_Fault, frozen=True, tag="calls_as_text"):
    """The model writes its calls into the text, behind the text of the reply."""

    form: TextForm = "fenced"


OfTheWire = Status | Disconnect | Hang | Cut | Garbage | Empty | ContentType | Slow | Habits
OfTheModel = WrongTool | UnknownTool | TwoTools | WithoutIds | HugeText | CallsAsText | SpeechInSilence
Fault = OfTheWire | OfTheModel
