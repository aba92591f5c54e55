"""The resources of every use case: settings, database, notifier and rules, opened once per process.

`wiring.py` opens them; the services of `app/`, and the interfaces above, take a `Runtime` or a `Switchboard`. Next:
`journey/accept.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from msgspec import Struct

from switchboard.app.policies import Policies
from switchboard.app.settings import Settings
from switchboard.core.channels.registry import CHANNELS, Channels
from switchboard.journey.accept import AcceptLeg
from switchboard.journey.people_book import PeopleBook
from switchboard.journey.reply import ReplyService
from switchboard.journey.rulebook import RuleBook
from switchboard.lanes.notifier import Notifier
from switchboard.ports.embedder import Embedder
from switchboard.store.database import Database
from switchboard.transport.mail_reading import MailReader


@dataclass(frozen=True, slots=True)
class Runtime:
    """The resources shared by interfaces and workers. Anything opened later is closed with `closing`.

    Without an `embedder`, memory is searched by words alone.
    """

    settings: Settings
    database: Database
    notifier: Notifier
    rule_book: RuleBook
    channels: Channels = field(default_factory=lambda: CHANNELS)
    closing: AsyncExitStack = field(default_factory=AsyncExitStack)
    embedder: Embedder | None = None
    policies: Policies = field(init=False)
    people_book: PeopleBook = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "policies", Policies(self.settings))
        object.__setattr__(self, "people_book", PeopleBook(self.database, self.notifier))


class Switchboard(Struct, frozen=True):
    """The runtime with the legs that the API and the MCP server call.

    `restart` lets this process end and start again with the settings that are there by then; None: somebody else has to
    do that.
    """

    runtime: Runtime
    accept: AcceptLeg
    replies: ReplyService
    mails: MailReader
    restart: Callable[[], None] | None = None
