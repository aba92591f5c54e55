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
from pathlib import Path
from typing import Final, Literal, Protocol, runtime_checkable

from msgspec import Struct
from pydantic import BaseModel

from switchboard.domain.envelope import Envelope
from switchboard.domain.errors import SwitchboardError
from switchboard.domain.json_values import JsonObject
from switchboard.domain.ledger import ReplyChoice

TextUnit = Literal["bytes", "code_points", "utf16"]
Markup = Literal["plain", "entities", "html", "markdown", "whatsapp"]
History = Literal["cursor", "window", "none"]
Idempotency = Literal["key", "lookup", "none"]
PRESS: Final = "press"
"""The field of a press's `event.reply_address` with the platform's id of the press; `message` is what was pressed."""
SEND_S: Final = 30.0
"""The maximum time for sending a part without files."""
DEAF_S: Final = 1800.0
"""A socket without any event for so long is resumed or replaced, even if it answers pings: perhaps it is deaf."""
_SLOWEST: Final = 65_536
"""The minimum speed of a connection in bytes per second."""
OnUncertain = Literal["ask", "resend_marked", "drop"]
Why = Literal["markup", "target", "blocked", "gone", "other"]


class Dialect(Struct, frozen=True, kw_only=True):
    """With which marks a platform shows text; the defaults are those of CommonMark. Tables are shown as code."""

    bold: str = "**"
    italic: str = "*"
    strikethrough: str = "~~"
    headings: int = 6
    """The deepest level of headings; those below are bold. 0: all are."""
    bullet: str = "- "
    links: bool = True
    """Whether words can carry a link, as in `[words](url)`; otherwise it stands behind them."""
    within_words: bool = True
    """Whether a part of a word can be marked."""
    code_language: bool = True
    """Whether a block of code may begin with the name of its language."""
    escapes: str = "\\`*_~[<#>|"
    """What a backslash makes an ordinary character; empty: nothing does."""


COMMONMARK: Final = Dialect()
WHATSAPP: Final = Dialect(
    bold="*",
    italic="_",
    strikethrough="~",
    headings=0,
    links=False,
    within_words=False,
    code_language=False,
    escapes="",
)


class Capabilities(Struct, frozen=True, kw_only=True):
    """What a platform can do. Limits are exactly the platform's, without a margin."""

    text_limit: int
    """Maximum length of a text, in `text_unit`."""
    text_unit: TextUnit = "code_points"
    caption_limit: int = 0
    """The same for a text that goes with a file; 0: the text becomes a part of its own."""
    no_caption: tuple[str, ...] = ()
    """Media types of files with which no text can go, such as `audio/*`."""
    markup: Markup = "plain"
    dialect: Dialect = COMMONMARK
    """That of the markup `markdown`."""
    mentions: str = ""
    """A pattern: what in a text would notify people, if a model wrote it. The kernel puts an invisible space behind its
    first character. Not in `html`, in which mentions are links."""
    history: History = "none"
    """How missed messages can be fetched later: from a `cursor`, only within a `window` of time, or not at all."""
    idempotency: Idempotency = "none"
    """Whether a part sent twice under one `key` becomes one message, or can be looked up with `find`."""
    key_window_s: float = 0.0
    """For how many seconds the platform remembers such a key."""
    typing_s: float = 0.0
    """For how many seconds one `typing` is shown; 0: there is no such thing."""
    max_file_in: int = 0
    """Maximum bytes of a file that can be fetched; 0: none can."""
    max_file_out: int = 0
    """Maximum bytes of the files in one part; 0: no files. Larger ones are only named in the text."""
    files_per_part: int = 1
    """Maximum number of files in one part; a text of a suitable length goes with them."""
    buttons: int = 0
    """Maximum number of buttons below a part; 0: choices are words of its text only."""
    label_limit: int = 60
    """Maximum number of characters of a button's label; longer ones are cut. Without it, they have at most 60."""
    draft_s: float = 0.0
    """Seconds between two drafts of an answer in a direct chat; 0: there are no drafts."""
    per_account_s: float = 0.0
    """Seconds between two parts of the account; 0: no limit."""
    per_conversation_s: float = 0.0
    per_group: tuple[int, float] | None = None
    """How many parts a group may get in how many seconds."""
    brake: tuple[int, float] | None = None
    """How many replies one sender or conversation may get in how many seconds. The next one waits until nothing has
    been sent there for that long; those after it are left to an operator. For platforms on which programs answer."""
    stale_s: tuple[float, float] = (6 * 3600.0, 900.0)
    """Seconds after which a message is too old to be answered, in a direct chat and in a group, unless the account says
    otherwise."""
    receive_window_s: float = 60.0
    """Maximum seconds of a receive round trip on a live connection, even if nothing arrives."""
    on_uncertain: OnUncertain = "resend_marked"
    """How to handle a part that may have been sent, unless the account says otherwise."""


class Secret(Struct, frozen=True):
    """A secret that an account needs. `what` says where to get it."""

    name: str
    what: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Account:
    """One account of a channel, as configured; `secrets` by name, read from files or the environment."""

    name: str
    settings: BaseModel
    secrets: Mapping[str, str] = field(repr=False)
    hook_url: str | None = None
    """Where the platform can post events for the account; None: `public_url` is not set."""
    directory: Path = Path()
    """That of the account's file: paths in the settings are relative to it."""


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
    """The event, if it contains the file."""


class Piece(Struct, frozen=True, kw_only=True):
    """Where an event stands, on platforms that may deliver one message of a person as several events.

    The kernel joins an event with the next one of the same sender and conversation, if that has the next number and was
    sent at most 2 s later by the platform's clock, and if the first is `cut` or either is `forwarded`. It waits for the
    next one only after an event that is `cut` or `forwarded`: until 1.5 s pass without one, and at most 5 s.
    """

    number: int
    """The platform's id of the message, which is one more for the next message of the conversation."""
    cut: Literal["", "\n"] | None = None
    """If the text is so long that the sender's app has probably split it: what belongs between it and the rest."""
    forwarded: bool = False
    """Whether it is somebody else's message that the sender passed on; the comment comes before it."""


class Inbound(Struct, frozen=True, kw_only=True):
    """One event of the platform, in its order. What the kernel needs to know is kept beside the envelope."""

    envelope: Envelope
    raw: bytes
    """The event as it came from the platform, for quarantine; `Session.read` understands it."""
    own: bool = False
    """Whether we wrote it ourselves, or nobody did: then it is skipped."""
    by_bot: bool = False
    direct: bool = False
    """Whether only the sender and we read the conversation."""
    files: tuple[FileIn, ...] = ()
    album: str | None = None
    """Events of one album are one message with several files."""
    piece: Piece | None = None
    """None: it is a message by itself, as a command is, unless it belongs to an album."""
    moved: tuple[str, str] | None = None
    """If the conversation has moved: its old thread and its new one."""
    unknown: str | None = None
    """The platform's name of its kind, if the package does not know it: such events are counted, and cause no turn."""
    id_for_s: float | None = None
    """For events posted to the server: seconds from its first arrival for which its id counts, as for one that was made
    of its body; None: as long as the message is kept."""


class Unreadable(Struct, frozen=True):
    """An event that could not be made into an envelope: it goes to quarantine, and the next one is read.

    `raw` is that of an `Inbound`. `refusal`: the answer to one that was posted, if no change of the account could help.
    """

    event_id: str
    raw: bytes
    reason: str
    refusal: SwitchboardError | None = None


class LateFailure(Struct, frozen=True, kw_only=True):
    """The platform reports that it did not deliver a message of ours that it had taken."""

    platform_message_id: str
    """As in `Sent`. The platform gives it to one message of the account only."""
    reason: str
    at: datetime
    """When it failed, by the platform's clock: a report that comes again has the same."""
    because: Literal["blocked"] | None = None
    """If nothing can be sent there until somebody writes there again."""


class Batch(Struct, frozen=True):
    """The result of a round trip, oldest first. `cursor`: where to continue once all is settled; None: unchanged."""

    events: tuple[Inbound | Unreadable, ...]
    cursor: str | None = None
    trouble: str | None = None
    """Why the platform may have no more for us though it answers: the account is degraded until a batch without it."""
    late: tuple[LateFailure, ...] = ()
    """Settled with the events."""


VERBATIM: Final = "verbatim"
"""Of an address, true: a person has approved what is sent, as it is.

It is one part, with its text without markup and all of its files, or it is not sent; it is never sent again in another
form, and no brake holds it back."""


class Part(Struct, frozen=True, kw_only=True):
    """One part of a reply: a text, a file, or a file with a text."""

    address: JsonObject
    """`event.reply_address` of the message being answered."""
    text: str = ""
    rendered: JsonObject | None = None
    """The platform's markup for the text; None: it is plain.

    {"entities": […]} refer to `text`, with offset and length in UTF-16 units; {"html": …}, {"markdown": …} and
    {"whatsapp": …} say the same as `text`, and are sent instead.
    """
    files: tuple[FileOut, ...] = ()
    """At most `files_per_part`, with the text as their caption."""
    reply_to: str | None = None
    """The platform's id of the message being answered."""
    subject: str | None = None
    choices: tuple[ReplyChoice, ...] | None = None
    """Buttons below it, which say what its text says, too. Where `address` has a `press` that the part answers, they
    replace those that were pressed, and the text is for whoever pressed; None: those stay."""

    @property
    def patience_s(self) -> float:
        """Seconds that one call of `send` may take: files take longer, and their lease is renewed meanwhile."""
        return SEND_S + sum(one.size_bytes for one in self.files) / _SLOWEST


class FileOut(Struct, frozen=True):
    """A file to send; `read` streams its bytes from the beginning each time it is called.

    A session does not send the part if `read` raises, and lets the exception through: the kernel handles it.
    """

    filename: str
    media_type: str
    size_bytes: int
    read: Callable[[], AsyncIterator[bytes]]


class Sent(Struct, frozen=True):
    """The platform has it, under this id."""

    platform_message_id: str


class Later(Struct, frozen=True):
    """The platform has certainly not accepted it, but may do so after these seconds. It uses up no attempt.

    `account`: until then it accepts nothing of the whole account, and is asked for nothing.
    """

    seconds: float
    reason: str = ""
    account: bool = False


class Refused(Struct, frozen=True):
    """The platform will never accept it as it is.

    `markup`: perhaps as plain text; `target`: perhaps if it answers no message; `blocked`: nothing can be sent there;
    `gone`: one of its files no longer exists.
    """

    reason: str
    because: Why = "other"


class Uncertain(Struct, frozen=True):
    """It was sent, but no answer arrived."""

    reason: str


Outcome = Sent | Later | Refused | Uncertain


class SignInRefused(SwitchboardError):
    """The platform does not accept the secret: a person must act. The text says what to do."""


class CursorRefused(SwitchboardError):
    """The platform no longer knows the cursor."""


class Busy(SwitchboardError):
    """Something else receives for this account, or a webhook is set; the text says which."""


class Session(Protocol):
    """An open account. Cancelling any call leaves it usable.

    Methods with a body are defaults for platforms without the feature; a session inherits them by naming this class as
    its base.
    """

    identity: Identity
    capabilities: Capabilities | None = None
    """What the platform said at sign-in that it can do, such as the largest file; None: as the manifest says."""

    def receive(self, cursor: str | None) -> AsyncIterator[Batch]:
        """What arrives after the cursor, without end; a batch without events for a round trip that brought none.

        The kernel asks for more before it has confirmed what came, to see the rest of an album. Events that are not yet
        confirmed may come again; only those covered by `confirm` may be forgotten.

        `cursor` None: from where the platform begins. Raises SignInRefused, CursorRefused, Busy, OSError.

        A session that `TakesPosted` is asked for what was kept instead, and needs no `receive`.
        """
        raise TypeError(f"{type(self).__name__} receives nothing by itself, so it has nothing after {cursor}")

    async def read(self, raw: bytes) -> Inbound | Unreadable:
        """Read an event from quarantine again; raises nothing. Its files are fetched like those of any other."""

    async def confirm(self, cursor: str) -> None:  # noqa: ARG002  a default
        """The platform may forget everything up to the cursor; called once Switchboard has stored that."""
        return

    async def send(self, part: Part, key: str) -> Outcome:
        """Send one part. Raises nothing that an outcome can express; any other exception counts as uncertain.

        `key` is that of no other part, and the same in every attempt of this one; `short_key` of the kernel shortens it
        for platforms whose keys have few characters.
        """

    async def find(self, part: Part, key: str) -> Sent | None:  # noqa: ARG002  a default
        """The part that may have been sent under this key; only for platforms that can be asked."""
        return None

    async def typing(self, address: JsonObject) -> None:  # noqa: ARG002  a default
        """Show that an answer is being written."""
        return

    async def draft(self, part: Part, number: int) -> Later | Refused | None:  # noqa: ARG002  a default
        """Show what is written so far of an answer; only on platforms with `draft_s`. None: it is shown.

        `number`: 1 to 2**31 - 1, the same for all drafts of an answer. Refused with `blocked`: not in this chat;
        otherwise nowhere. Raises OSError.
        """
        return Refused("the platform has no drafts")

    def fetch(self, file: FileIn) -> AsyncIterator[bytes]:
        """The bytes of a message's file. Raises OSError; FileNotFoundError or ValueError if it can never be fetched."""
        raise ValueError(f"the platform has no file {file.attachment}")

    async def latest(self) -> str | None:
        """The cursor after everything that exists now; None: the platform itself begins with what is new."""
        return None

    async def close(self) -> None:
        """Close all connections."""
        return


class Posted(Struct, frozen=True):
    """What was posted to `/hooks/{account}`; names of headers are in lower case."""

    body: bytes
    headers: Mapping[str, str]


class PostedEvents(Protocol):
    """What the server keeps for an account and is not settled yet: what the platform has posted to it, or pushed to us.

    All but `keep` wait while the server is unavailable.
    """

    async def posted(self, after: int, wait_s: float) -> Sequence[tuple[int, bytes]]:
        """Numbers and bodies of the events after number `after`, in order; waits up to `wait_s` for the first."""

    async def settle_posted(self, upto: int) -> None:
        """The events up to that number are never returned again."""

    async def keep(self, raw: bytes, mark: str) -> None:
        """Have an event kept that the platform pushed to us, so that `posted` returns it.

        Only then is the platform answered, which would otherwise forget it, or push it again. One whose `mark` is that
        of an event not settled yet is kept already. `mark`: the platform's id of the event, at most 512 characters.
        Raises OSError if it cannot be kept now: then the platform gets no answer.
        """


@runtime_checkable
class TakesPosted(Protocol):
    """A session of a platform that posts events to the server, now or formerly, or pushes them over a socket.

    A socket that must be answered within seconds cannot wait until an event is settled: others may come before it, and
    their files take time. So `receive_posted` hands each to `keep`, answers it, and yields what `posted` returns.
    """

    def receive_posted(self, cursor: str | None, posted: PostedEvents) -> AsyncIterator[Batch]:
        """Called instead of `Session.receive`. Posted events come first; `confirm` settles them."""


@runtime_checkable
class KeepsCounters(Protocol):
    """A session that counts what only its platform knows, such as what costs money."""

    @property
    def counters(self) -> Mapping[str, int]:
        """By name; shown with the counters of the account."""


class Hook(Struct, frozen=True):
    """How a platform posts its events to the server. The functions are pure and raise nothing; times are aware."""

    endpoint: str
    """Our own account at the platform, as in `Identity`."""
    verify: Callable[[Account, Posted, datetime], str | None]
    """Why it is not from the platform, without revealing a secret; None: it is. The body is byte for byte as sent."""
    read: Callable[[Account, Posted, datetime], Inbound | Unreadable] | None
    """The event, once verified. None: the server keeps the request as it came, for the session (`TakesPosted`)."""
    challenge: Callable[[Account, Mapping[str, str], datetime], str | None] | None = None
    """The answer to a GET with these parameters, by which the platform learns that the URL is ours: at most 1 KB of
    plain text. None: it does not come from the platform, and is refused with 403."""
    reply: Callable[[Account, Posted], bytes | None] | None = None
    """The JSON with which a verified request that is no event is answered, such as a handshake; it is not kept. None:
    it is an event."""


class SignInPreset(Struct, frozen=True, kw_only=True):
    """A well-known provider of a channel, at which people sign in by OAuth 2 instead of giving a secret.

    `provider` and `opens` are of `transport/oauth/providers.py`; `settings` are those of an account there, but for what
    is asked; `steps` as in the manifest.
    """

    title: str
    provider: str
    opens: tuple[Literal["calendar", "contacts", "mail"], ...]
    settings: JsonObject
    steps: tuple[str, ...]


class Manifest(Struct, frozen=True, kw_only=True):
    """What a connector package declares; importing it imports no SDK."""

    name: str
    """The name that accounts use; also that of the entry point."""
    channel: str
    provider: str
    title: str = ""
    """What people call the platform; by default the name of the channel."""
    settings: type[BaseModel]
    secrets: tuple[Secret, ...]
    strangers: Literal["pair", "listed", "open"] = "pair"
    """Who may write to an account, unless the account says otherwise."""
    steps: tuple[str, ...]
    """How to get an account, one sentence each, for people who have never done it."""
    to_paste: str = ""
    """What a step says to paste at the platform, such as the description of an app; it is shown below the steps."""
    to_do: Callable[[Account, Identity], str] | None = None
    """What is left to do at the platform once the account has signed in, such as opening the URL that invites a bot."""
    capabilities: Capabilities
    open: Callable[[Account], Awaitable[Session]]
    """Signs in. Raises SignInRefused, OSError."""
    can_send: Callable[[Account], Awaitable[None]] | None = None
    """Checks that replies could be sent, if `open` does not; sends nothing. Raises SignInRefused, OSError."""
    usual: Callable[[JsonObject], JsonObject] | None = None
    """Derives settings from the given ones, such as the servers of a mail address."""
    hook: Callable[[Account], Hook | None] | None = None
    """For platforms that can post events to the server; returns None for an account whose events are fetched."""
    connects: bool = True
    """Whether a connector runs for an account; not if everything arrives by `hook`."""
    presets: Mapping[str, SignInPreset] = {}
    """By the names that people give to `switchboard channels add`. The settings of the channel then have `address`, who
    signs in, and `token_file`."""

    @property
    def platform(self) -> str:
        """What people call it."""
        return self.title or self.channel
