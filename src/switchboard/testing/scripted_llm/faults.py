"""What can go wrong on purpose, as values. Each is the `fault` of a reply, in JSON told apart by `kind`.

`script.py` carries them; `spoil.py` does those that change what the model says, `endpoints.py` those of the wire.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Where = Literal["start", "middle"]
"""Before anything is answered, or after half of the stream. A reply that is not streamed has no middle but its body."""


class _Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    pass


class Status(_Fault, frozen=True, tag="status"):
    """An error of the provider, in its own words: 401, 429, 500, 529… In the middle of a stream: its error event.

    `retry_after` (seconds) goes into the header of that name.
    """

    status: int
    retry_after: float | None = None
    message: str = "scripted error"
    at: Where = "start"


class Disconnect(_Fault, frozen=True, tag="disconnect"):
    """The connection is reset without an answer. (For one that is refused: `ScriptedLlm.closed`.)"""


class Hang(_Fault, frozen=True, tag="hang"):
    """Nothing more comes, until `gate` is released (then all comes as it should) or the client goes away."""

    gate: str = "hang"
    at: Where = "start"


class Cut(_Fault, frozen=True, tag="cut"):
    """The connection ends after half of the events, or of the body; or after so many bytes of it.

    With `quiet` what came until then looks like a whole body, as some proxies make it look.
    """

    after: int | None = None
    quiet: bool = False


class Garbage(_Fault, frozen=True, tag="garbage"):
    """Status 200, and JSON that is none: as the body, or as the data of the first event."""

    text: str = '{"choices": [{"mess'


class Empty(_Fault, frozen=True, tag="empty"):
    """Status 200, the right content type, no body."""


class ContentType(_Fault, frozen=True, tag="content_type"):
    """Status 200 and a page in place of the API, as proxies and captive portals send it."""

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
    """The text grows to so many characters."""

    characters: int = 1_000_000


OfTheWire = Status | Disconnect | Hang | Cut | Garbage | Empty | ContentType | Slow
OfTheModel = WrongTool | UnknownTool | TwoTools | WithoutIds | HugeText
Fault = OfTheWire | OfTheModel
