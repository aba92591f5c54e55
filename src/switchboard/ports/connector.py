"""The port of connectors: what a package that connects a platform declares, and what its open session does.

A package names its `Manifest` as an entry point of the group `switchboard.connectors`; `open` is called when an account
is started, and imports the platform's SDK only then. What a channel means to rules and models is its `Channel`
(`channel.py`); this is how its messages come and go. The kernel in `connectors/` calls a session and does everything
that all platforms have in common. Next: `connectors/kernel`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal, Protocol, runtime_checkable

from msgspec import Struct
from pydantic import BaseModel

from switchboard.domain.envelope import Envelope
from switchboard.domain.errors import SwitchboardError
from switchboard.domain.json_values import JsonObject

TextUnit = Literal["bytes", "code_points", "utf16"]
Markup = Literal["plain", "entities", "html", "markdown", "mrkdwn"]
History = Literal["cursor", "window", "none"]
Idempotency = Literal["key", "lookup", "none"]
SEND_S: Final = 30.0
"""The longest that sending a part without files may take."""
_SLOWEST: Final = 65_536
"""Bytes per second that a connection carries at least."""
OnUncertain = Literal["ask", "resend_marked", "drop"]
Why = Literal["markup", "target", "blocked", "gone", "other"]


class Capabilities(Struct, frozen=True, kw_only=True):
    """What a platform can do. Limits are those of the platform, not a little below them."""

    text_limit: int
    """Maximum length of a text, in `text_unit`."""
    text_unit: TextUnit = "code_points"
    caption_limit: int = 0
    """The same for a text that goes with a file; 0: such a text is a part of its own."""
    markup: Markup = "plain"
    history: History = "none"
    """How it gives missed messages again: from a `cursor`, only within a `window` of time, or not at all."""
    idempotency: Idempotency = "none"
    """Whether a part that is sent twice under one `key` is one message; or can be asked for with `find`."""
    key_window_s: float = 0.0
    """Seconds for which it remembers such a key."""
    typing_s: float = 0.0
    """Seconds for which one `typing` is shown; 0: it has none."""
    max_file_in: int = 0
    """Maximum bytes of a file that can be fetched; 0: none can."""
    max_file_out: int = 0
    """Maximum bytes of the files that one part brings; 0: it can bring none. What is larger is named in the text."""
    files_per_part: int = 1
    """How many files one part brings; a text goes with several of them where its length allows it."""
    per_account_s: float = 0.0
    """Seconds between two parts of the account; 0: no limit."""
    per_conversation_s: float = 0.0
    per_group: tuple[int, float] | None = None
    """How many parts a group may get in how many seconds."""
    brake: tuple[int, float] | None = None
    """How many replies one sender or conversation may get in how many seconds. The next one waits until nothing was
    sent there for as long, and those after it are left to an operator; for platforms on which programs answer."""
    stale_s: tuple[float, float] = (6 * 3600.0, 900.0)
    """Seconds after which a message is too old to be answered, in a direct chat and in a group, unless the account says
    otherwise."""
    receive_window_s: float = 60.0
    """Seconds within which a receive round trip ends while the connection is alive, even if nothing arrives."""
    on_uncertain: OnUncertain = "resend_marked"
    """How to handle a part that may have been sent, unless the account says otherwise."""


class Secret(Struct, frozen=True):
    """A secret that an account needs. `what` is a text that says where to get it."""

    name: str
    what: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Account:
    """One account of a channel, as its file says; `secrets` by name, read from files or the environment."""

    name: str
    settings: BaseModel
    secrets: Mapping[str, str] = field(repr=False)
    hook_url: str | None = None
    """Where the platform can post events for the account; None: `public_url` is not set."""


class Identity(Struct, frozen=True):
    """Who we are on the platform. `endpoint` is the platform's own id of the account, which never changes."""

    endpoint: str
    display_name: str = ""


@dataclass(frozen=True, slots=True)
class FileIn:
    """A file of a message that can be fetched: `attachment` is its position in `payload.attachments`."""

    attachment: int
    handle: JsonObject
    """What the session needs to fetch it. Without `raw`, equal handles are the same bytes."""
    raw: bytes = field(default=b"", repr=False)
    """The event, if the file is in it."""


class Inbound(Struct, frozen=True, kw_only=True):
    """One event of the platform, in its order. What the kernel needs to know of it is beside the envelope."""

    envelope: Envelope
    raw: bytes
    """The event as the platform gave it, for quarantine; `Session.read` understands it."""
    own: bool = False
    """We wrote it ourselves: it is left out."""
    by_bot: bool = False
    direct: bool = False
    """Only the sender and we read the conversation."""
    files: tuple[FileIn, ...] = ()
    album: str | None = None
    """Events of one album are one message with several files."""
    moved: tuple[str, str] | None = None
    """The conversation has moved: its old thread, and its new one."""


class Unreadable(Struct, frozen=True):
    """An event that could not be made into an envelope: it goes to quarantine, and the next one continues.

    `raw` is as of an `Inbound`.
    """

    event_id: str
    raw: bytes
    reason: str


class Batch(Struct, frozen=True):
    """The result of a round trip, oldest first. `cursor`: where to continue once all is settled; None: unchanged."""

    events: tuple[Inbound | Unreadable, ...]
    cursor: str | None = None
    trouble: str | None = None
    """Why the platform may be unable to give us more, though it answers: the account is degraded until one without."""


class Part(Struct, frozen=True, kw_only=True):
    """One part of a reply: a text, a file, or a file with a text."""

    address: JsonObject
    """`event.reply_address` of the message that is answered."""
    text: str = ""
    rendered: JsonObject | None = None
    """What belongs to the text in the platform's markup; None: it is plain.

    {"entities": […]} lie over `text`, with offset and length in UTF-16 units; {"html": …} and {"markdown": …} say the
    same as `text`, and are sent instead.
    """
    files: tuple[FileOut, ...] = ()
    """At most `files_per_part`, with the text as their caption."""
    reply_to: str | None = None
    """The platform's id of the message that is answered."""
    subject: str | None = None

    @property
    def patience_s(self) -> float:
        """Seconds that one call of `send` may take: files take longer, and their lease is renewed meanwhile."""
        return SEND_S + sum(one.size_bytes for one in self.files) / _SLOWEST


class FileOut(Struct, frozen=True):
    """A file to send; `read` streams its bytes from the beginning each time it is called.

    What it raises, a session lets through without sending the part: the kernel knows what becomes of it.
    """

    filename: str
    media_type: str
    size_bytes: int
    read: Callable[[], AsyncIterator[bytes]]


class Sent(Struct, frozen=True):
    """The platform has it, under this id."""

    platform_message_id: str


class Later(Struct, frozen=True):
    """The platform has certainly not taken it, and may do so after these seconds. It uses up no attempt."""

    seconds: float
    reason: str = ""


class Refused(Struct, frozen=True):
    """The platform will never take it as it is.

    `markup`: perhaps as plain text; `target`: perhaps not as an answer; `blocked`: nothing can be sent there; `gone`: a
    file of it is not there any more.
    """

    reason: str
    because: Why = "other"


class Uncertain(Struct, frozen=True):
    """It was written, and no answer arrived."""

    reason: str


Outcome = Sent | Later | Refused | Uncertain


class SignInRefused(SwitchboardError):
    """The platform does not accept the secret: a person must act. The text says what to do."""


class CursorRefused(SwitchboardError):
    """The platform does not know the cursor any more."""


class Busy(SwitchboardError):
    """Somebody else receives for this account, or a webhook is set; the text names it."""


class Session(Protocol):
    """An account that is open. Cancelling any call leaves it usable.

    What has a body here is right for platforms without such a thing, for sessions that name this class as their base.
    """

    identity: Identity

    def receive(self, cursor: str | None) -> AsyncIterator[Batch]:
        """What arrives after the cursor, forever; a batch without events for a round trip that brought none.

        The kernel asks for more before it has confirmed what came, to see the rest of an album. What has not been
        confirmed yet may come again; only what `confirm` was called with may be forgotten.

        None: from where the platform begins. Raises SignInRefused, CursorRefused, Busy, OSError.
        """

    async def read(self, raw: bytes) -> Inbound | Unreadable:
        """An event from quarantine, read again; raises nothing. Its files are fetched as those of any other."""

    async def confirm(self, cursor: str) -> None:
        """The platform may forget everything up to the cursor; it is called after the switchboard has it."""

    async def send(self, part: Part, key: str) -> Outcome:
        """Send one part. Raises nothing that the outcome can say; any other exception counts as uncertain."""

    async def find(self, part: Part, key: str) -> Sent | None:  # noqa: ARG002  a default
        """The part that was perhaps sent under this key; only for platforms that can be asked."""
        return None

    async def typing(self, address: JsonObject) -> None:  # noqa: ARG002  a default
        """Show that an answer is being written."""
        return

    def fetch(self, file: FileIn) -> AsyncIterator[bytes]:
        """The bytes of a file of a message. Raises OSError; FileNotFoundError, ValueError: it will never be given."""
        raise ValueError(f"the platform has no file {file.attachment}")

    async def latest(self) -> str | None:
        """The cursor behind everything that is there now; None: the platform begins with what is new by itself."""
        return None

    async def close(self) -> None:
        """Leave no connection open."""
        return


class Posted(Struct, frozen=True):
    """What was posted to `/hooks/{account}`; names of headers are in lower case."""

    body: bytes
    headers: Mapping[str, str]


class PostedEvents(Protocol):
    """What the platform has posted for an account and is not settled. Waits while the server is unavailable."""

    async def posted(self, after: int, wait_s: float) -> Sequence[tuple[int, bytes]]:
        """Numbers and bodies of the events after that number, in their order; waits so long for the first."""

    async def settle_posted(self, upto: int) -> None:
        """The events up to that number are never given again."""


@runtime_checkable
class TakesPosted(Protocol):
    """A session of a platform that posts events to the server, now or formerly."""

    def receive_posted(self, cursor: str | None, posted: PostedEvents) -> AsyncIterator[Batch]:
        """As `Session.receive`, which is not called then. What was posted goes first; `confirm` settles it."""


class Hook(Struct, frozen=True):
    """How a platform posts its events to the server. The functions are pure and raise nothing; times have a zone."""

    endpoint: str
    """Our own account at the platform, as in `Identity`."""
    verify: Callable[[Account, Posted, datetime], str | None]
    """Why it is not from the platform, without any secret; None: it is. The body is byte for byte as it came."""
    read: Callable[[Account, Posted, datetime], Inbound | Unreadable] | None
    """The event, once it is verified. None: the server keeps it as it came, for the session (`TakesPosted`)."""


class Manifest(Struct, frozen=True, kw_only=True):
    """What a connector package declares; importing it imports no SDK."""

    name: str
    """As accounts name it; also the entry point."""
    channel: str
    provider: str
    title: str = ""
    """What people call the platform; the name of the channel unless it is given."""
    settings: type[BaseModel]
    secrets: tuple[Secret, ...]
    strangers: Literal["pair", "listed", "open"] = "pair"
    """Who may write to an account, unless it says otherwise."""
    steps: tuple[str, ...]
    """How to get an account, one sentence each, for people who have never done it."""
    capabilities: Capabilities
    open: Callable[[Account], Awaitable[Session]]
    """Signs in. Raises SignInRefused, OSError."""
    can_send: Callable[[Account], Awaitable[None]] | None = None
    """Whether replies could be sent, where `open` does not tell; nothing is sent. Raises SignInRefused, OSError."""
    usual: Callable[[JsonObject], JsonObject] | None = None
    """From settings that are given, others that go with them, such as the servers of a mail address."""
    hook: Callable[[Account], Hook | None] | None = None
    """For platforms that can post events to the server; None for an account whose events are fetched."""
    connects: bool = True
    """Whether a connector runs for an account; not where everything arrives by `hook`."""

    @property
    def platform(self) -> str:
        """As people call it."""
        return self.title or self.channel
