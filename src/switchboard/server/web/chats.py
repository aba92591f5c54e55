"""The box to write into, and what is shown above it: for the page Chat, and for any other that lets people write.

Called by functions of `pages/`: `open_chat` reads what the macros of `templates/chatting.html` draw. Next:
`app/page_chats.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from hashlib import sha256
from secrets import token_urlsafe
from typing import Final
from uuid import UUID

from msgspec import Struct
from starlette.datastructures import UploadFile

from switchboard.app.messages.chat import Speaker
from switchboard.app.page_chats import ChatDestination, PageChats, ShownExchange, speaker_on_page
from switchboard.app.rules.replays import Replays
from switchboard.domain.envelope import Attachment
from switchboard.domain.errors import InvalidInput
from switchboard.server.services import ServiceFactory
from switchboard.server.web.forms import receivers_of
from switchboard.server.web.looking import LOOKING_VIEWS
from switchboard.server.web.visit import MOST_FILES, Visit
from switchboard.server.ws.connection import CHAT_SERVICE

PAGE_CHATS: Final = ServiceFactory(
    lambda s: PageChats(s.runtime, s.of(LOOKING_VIEWS), s.of(CHAT_SERVICE), Replays(s.runtime))
)
_ROWS: Final = 20
_LONGEST_NAME: Final = 200
_PIECE: Final = 65_536


class ChatBox(Struct, frozen=True):
    """What a form to write with needs. `key`: with the words, the message that it sends, however often it is sent."""

    speaker: Speaker
    thread: str
    key: str
    to: str
    butlers: Sequence[str]
    """Those that the writer may address a message to, whatever the rules say."""
    destination: ChatDestination | None
    """None: nobody knows yet, as what was asked for does not exist."""
    file_bytes: int
    most_files: int
    back: str


class OpenChat(Struct, frozen=True):
    """A conversation as it is shown: a page of it, oldest first, and the box. `live`: whose answer is followed."""

    box: ChatBox
    exchanges: Sequence[ShownExchange]
    following: str | None
    live: UUID | None


def new_thread() -> str:
    """The name of a conversation that is yet to begin."""
    return token_urlsafe(9)


async def newest_thread(visit: Visit) -> str | None:
    """The conversation in which the visitor wrote last, if there is one."""
    threads, _ = await visit.services.of(PAGE_CHATS).threads(speaker_of(visit), limit=1, cursor=None)
    return threads[0].thread if threads else None


def speaker_of(visit: Visit) -> Speaker:
    """Who the visitor writes as."""
    return speaker_on_page(visit.caller, visit.session.name)


async def open_chat(
    visit: Visit, thread: str, *, to: str = "", cursor: str | None = None, back: str = "", limit: int = _ROWS
) -> OpenChat:
    """What is shown of a conversation. `back`: the page that is shown after a message was sent."""
    chats, speaker = visit.services.of(PAGE_CHATS), speaker_of(visit)
    # Asked first: of an answer that comes in between, nobody would be told afterwards.
    live = await chats.first_open(speaker, thread)
    found, following = await chats.exchanges(visit.caller, speaker, thread, limit=limit, cursor=cursor)
    if any(one.entry.request_id == live and one.standing is None for one in found):
        live = next((one.entry.request_id for one in reversed(found) if one.standing is not None), None)
    return OpenChat(await _open_box(visit, speaker, thread, to, back), list(reversed(found)), following, live)


async def _open_box(visit: Visit, speaker: Speaker, thread: str, to: str, back: str) -> ChatBox:
    chats = visit.services.of(PAGE_CHATS)
    may_address = visit.caller.role == "operator"
    receivers = receivers_of(visit.services.runtime.rule_book.rules)
    butlers = receivers.butlers if may_address else await chats.written_by(speaker, thread)
    wanted = to if to in butlers else ""
    return ChatBox(
        speaker=speaker,
        thread=thread,
        key=token_urlsafe(16),
        to=wanted,
        butlers=butlers,
        destination=await chats.destination(speaker, thread, wanted or None),
        file_bytes=visit.services.runtime.settings.blobs.file_bytes,
        most_files=MOST_FILES,
        back=back,
    )


def name_from(given: str | None, what: str) -> str:
    """The name of a conversation, or a key. Raises InvalidInput."""
    name = (given or "").strip()
    if not name or len(name) > _LONGEST_NAME or not name.isprintable():
        raise InvalidInput(f"{what} is missing; open the page again")
    return name


def key_for(form: str, text: str, to: str, files: Sequence[Attachment]) -> str:
    """The key of what a form sends: the same for the same words.

    A browser that goes back shows the old form, in which something else is written then.
    """
    sent = "\0".join([form, to, text, *(f"{one.storage_ref} {one.filename}" for one in files)])
    return sha256(sent.encode()).hexdigest()


async def store_files(visit: Visit) -> list[Attachment]:
    """Store what came with the form. Raises TooLarge, BlobQuota."""
    return [await _store_file(visit, one) for one in visit.files]


async def _store_file(visit: Visit, file: UploadFile) -> Attachment:
    claimed = file.content_type or "application/octet-stream"
    stored = await visit.services.blobs.upload(visit.caller, _pieces_of(file), claimed, file.size)
    name = (file.filename or "file")[:_LONGEST_NAME]
    return Attachment(
        media_type=stored.media_type, filename=name, size_bytes=stored.size_bytes, storage_ref=f"blob:{stored.blob}"
    )


async def _pieces_of(file: UploadFile) -> AsyncIterator[bytes]:
    while piece := await file.read(_PIECE):
        yield piece
