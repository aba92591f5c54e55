"""The port of channels: what Switchboard knows about a channel, and the outcome of sending a reply.

A channel is one frozen record of data and pure functions. Ours are in `core/channels/`, one file each; a package of a
third party names its own as an entry point of `switchboard.channels`. Every function gets an envelope whose
`payload.raw` was written by strangers: it ignores odd values and never raises (`raw.py` helps).
`store/messages/outbox.py` settles receipts. Next: `core/channels/telegram.py` as an example.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final, Literal, get_args

from msgspec import Struct, field
from msgspec.structs import replace

from switchboard.domain.envelope import ChatType, Envelope
from switchboard.ports.raw import INTEGER

SendOutcome = Literal["sent", "retryable", "later", "failed", "uncertain"]
SendFailure = Literal["braked", "blocked"]
"""Why no replies at all go to a conversation: a program seems to answer there, or nothing can be sent there."""


class Receipt(Struct, frozen=True):
    """The platform's answer to one attempt."""

    outcome: SendOutcome
    platform_message_id: str | None = None
    error: str | None = None
    delay: float = 0.0
    """Seconds until the next attempt if it is `retryable`, or `later`, which uses up no attempt."""
    because: SendFailure | None = None
    """Why it failed, if people are to be told."""


Found = Mapping[str, str | None]
"""Facts by key; None if unknown."""
SEVERAL: Final = "\n"
"""The separator between the values of a fact that has several."""


class Form(Struct, frozen=True):
    """What all values of a fact look like: `pattern` matches them whole. `what` follows "it is …" in an error."""

    pattern: re.Pattern[str]
    what: str
    right: Callable[[str], str] = str.lower
    """What a value that does not match is probably meant to be."""
    several: bool = False
    """Whether a fact may have several such values, any of which a filter may name; only in our own channels."""

    def fitting(self, value: str | None) -> str | None:
        """The value if it has the form."""
        return value if value is not None and self.pattern.fullmatch(value) else None

    def mismatch(self, value: str) -> str | None:
        """Why the value does not have the form, and what is probably meant; None if it does."""
        if self.fitting(value) is not None:
            return None
        meant = self.fitting(self.right(value))
        return f"it is {self.what}" + (f"; write {meant!r}" if meant else "")


Values = Literal["text", "lower"] | frozenset[str] | Form
"""What a fact may be: any text, lower-case text, one of a few words, or a text of a certain form."""
NUMBER: Final = Form(INTEGER, "a number without leading zeros, negative for groups", lambda value: value.lstrip("0"))
Implies = Mapping[str, tuple[str, ...]]
"""For the key of a fact, the keys of the facts that it determines."""
Strategy = Literal["realtime", "email", "none"]
Identities = Literal["platform", "address", "claimed"]
Realm = Literal["channel", "endpoint"]


class Correspondence(Struct, frozen=True):
    """Who wrote a message, to whom, and in which threads: first the one it claims to belong to, last its own.

    `answered`: the platform's ids of messages that it refers to, without brackets, the nearest first.
    """

    author: str
    addressed: tuple[str, ...]
    threads: tuple[str, ...]
    answered: tuple[str, ...] = ()


MAX_REPLIED: Final = 1000
"""Maximum characters of the text in a `Replied`."""


class Replied(Struct, frozen=True, kw_only=True):
    """The message that another one answers, as the platform repeats it. Somebody else's words, unless it is `ours`."""

    text: str
    """At most `MAX_REPLIED` characters, of which the last say how many are missing; empty: the platform gives none."""
    author: str | None = None
    """The name of who wrote it, which they chose themselves; one line."""
    sent_at: datetime | None = None
    refers_to: str | None = None
    """The platform's id of it; None if it is in another conversation."""
    ours: bool = False
    """Whether the receiving account wrote it."""


CHAT_TYPES: Final = frozenset(get_args(ChatType))
GROUPS: Final = CHAT_TYPES - {"private"}
"""The kinds of chat in which everybody reads everything."""
YES_OR_NO: Final = frozenset({"yes", "no"})
MEDIA: Final = Form(
    re.compile("animation|audio|document|photo|sticker|video|voice"),
    "animation, audio, document, photo, sticker, video or voice",
    several=True,
)
COMMON_KEYS: Final[dict[str, Values]] = {
    **dict.fromkeys(("channel", "endpoint", "sender", "thread"), "text"),
    "chat_type": CHAT_TYPES,
    "has_attachment": YES_OR_NO,
    "media": MEDIA,
}
"""The facts that messages of every channel may have."""
MAX_SLUG: Final = 40
SLUG: Final = re.compile(rf"(?=.{{1,{MAX_SLUG}}}\Z)[a-z0-9]+(?:-[a-z0-9]+)*")
"""What the id of a person, and the name of a group of persons, look like."""
PERSON_KEYS: Final[dict[str, Values]] = {
    "person": Form(SLUG, "the id of a person, in lower-case letters, digits and -"),
    "groups": Form(SLUG, "the name of a group of persons, in lower-case letters, digits and -", several=True),
}
"""The facts of messages whose sender is a known person, on channels where somebody vouches for senders."""
COMMON_IMPLIES: Final[Implies] = {"media": ("has_attachment",)}


def _nothing(_: Envelope) -> str | None:
    return None


def _no_reply(_: Envelope) -> Replied | None:
    return None


def _open(_: Envelope) -> Correspondence | None:
    return None


def _no_facts(_: object) -> Found:
    return {}


def _surely(_: object) -> bool:
    return True


def _never(_: object) -> bool:
    return False


class Channel(Struct, frozen=True, kw_only=True):
    """One channel; every default suits a channel about which nothing else is known."""

    name: str
    providers: frozenset[str] = frozenset()
    """Who may submit its messages."""
    event_id: Callable[[Envelope], str | None] = _nothing
    """The platform's id of this event, preferably from `payload.raw`; None: it is `external_event_id`."""
    content: Callable[[Envelope], str | None] = _nothing
    """What must be equal besides the id for two messages to be the same, where strangers choose ids; None: nothing."""
    comes_twice: Callable[[Envelope], bool] = _never
    """Whether this event may come from another conversation as well: one is a duplicate only if the other was heard."""
    chat: Callable[[Envelope], str | None] = _nothing
    """The chat of a message that names no thread; None: the conversation is that of its sender."""
    group: Callable[[Envelope], str | None] = _nothing
    """The place that is approved as a whole, if many read the message: a thread is none. None: it is the chat."""
    title: Callable[[Envelope], str | None] = _nothing
    """What people call the group that a message was written in; None: that is not known."""
    correspondence: Callable[[Envelope], Correspondence | None] = _open
    """Who may write in a thread, where anyone can name any thread; None: whoever names one belongs to it."""
    replied_to: Callable[[Envelope], str | None] = _nothing
    """The platform's id of the message that this one replies to."""
    command_mark: str = "/"
    """What people write before a command of Switchboard where apps keep the slash to themselves; a slash always counts.
    """
    replied: Callable[[Envelope], Replied | None] = _no_reply
    """The message that this one replies to, where the platform repeats it in `payload.raw`."""
    facts: Callable[[Envelope], Found] = _no_facts
    """What rules can match on besides the common facts; its keys are among `keys` and the common ones.

    `media` is derived from the attachments of the envelope unless it is returned here.
    """
    keys: dict[str, Values] = field(default_factory=dict)
    """The keys of its own facts, and the values they may have."""
    unknown: Mapping[str, str] = field(default_factory=dict)
    """Those keys that no message of this installation has, each with what would change that."""
    implies: Implies = field(default_factory=dict)
    """For a key, others that it pins down as well, as a sender does its domain: they count for the rank of a rule."""
    implied: Callable[[Mapping[str, str]], Found] = _no_facts
    """Facts that follow from made-up facts, as they would from a message."""
    automatic: Callable[[Envelope], str | None] = _nothing
    """The sign that no person is waiting for an answer, such as `precedence: bulk`; None: a person may be waiting."""
    looped: Callable[[Envelope], str | None] = _nothing
    """The sign that programs are answering each other, which no setting allows to continue; None: no sign."""
    authentic: Callable[[Mapping[str, str]], bool] = _surely
    """Whether a message with these facts is certainly from its sender; if not, butlers remember nothing of it."""
    identity: Identities = "claimed"
    """Who vouches for the identity of a sender: the platform, or the mail servers that prove an address (then it is the
    fact `email_sender`, and counts only in a message that is `authentic`). `claimed`: nobody does, whoever may write
    chooses it.
    """
    realm: Realm = "endpoint"
    """Within what an identity means the same person: all endpoints of the channel, or a single one."""
    overheard: Callable[[Mapping[str, str]], bool] = _never
    """Whether these facts show that others were addressed besides us: then a reply tells nothing private."""
    history: Strategy = "none"
    """How much of a conversation a model is shown."""
    replies: Literal["connector", "interface"] = "connector"
    """How replies arrive: a connector fetches them, or the sender reads them at the interface it wrote to."""
    callbacks: bool = False
    """Whether replies may be posted to a URL that the settings give for an endpoint."""
    personal: bool = False
    """Whether a reply reaches only the sender if a message does not say what kind of chat it is from."""
    alone: bool = False
    """Whether each endpoint has a single sender, of the same name as the endpoint."""

    @property
    def vouched(self) -> bool:
        """Whether an identity can show who wrote a message; if not, it is a name that anybody may take."""
        return self.identity != "claimed"

    @property
    def tells_replied(self) -> bool:
        """Whether the channel defines `replied`, which needs the `payload.raw` of a message."""
        return self.replied is not _no_reply

    @property
    def tells_automatic(self) -> bool:
        """Whether the channel defines `automatic`, which needs the `payload.raw` of a message."""
        return self.automatic is not _nothing

    def group_of(self, envelope: Envelope) -> str:
        """The place of a message in a group; its sender, if no place is known."""
        place = self.group(envelope) or self.chat(envelope) or envelope.event.external_thread_id
        return place or envelope.sender.identity

    def named(self, name: str) -> Channel:
        """The same channel under another name, for another connector."""
        return replace(self, name=name)
