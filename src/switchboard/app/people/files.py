"""Which files on the disks of workers are of a person, and go when the person is erased.

`app/people/personal.py` calls it before messages are erased, as they say which files these are. In: the scope; out:
orders for all workers, and which workspaces stay. Next: `store/people/erased_files.py`, `app/ops/erased_files.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from glob import escape
from typing import Final

import msgspec
from msgspec import Struct

from switchboard.core.channels.registry import Channels
from switchboard.core.envelope.stored import stored_envelope
from switchboard.core.files.blobs import stored_blob
from switchboard.core.people.readers import directory_of, directory_of_person, reader_among
from switchboard.core.turns.images import DIGITS, INBOX, digest_in_inbox
from switchboard.domain.envelope import Attachment, Envelope
from switchboard.domain.routing import Member, SystemId
from switchboard.ports.facts import Reader
from switchboard.ports.people import PersonalScope
from switchboard.store.database import Database
from switchboard.store.people import erased_files
from switchboard.store.people import personal_messages as messages
from switchboard.store.people.personal_messages import MessageWithFiles
from switchboard.tools.results import DIRECTORY
from switchboard.tools.workspace import workspace_name

_AT_ONCE: Final = 500


class WorkspacesOfPerson(Struct, frozen=True):
    """The workspaces of butlers who have worked for the person: `alone` for nobody else, `shared` also for others.

    Of those who work for the person at this moment neither is said: a turn needs its files. `named`: directories that
    an operator has chosen for butlers who worked for nobody else; they may have anything.
    """

    alone: tuple[str, ...]
    shared: tuple[str, ...]
    named: tuple[str, ...]


async def find_workspaces(database: Database, members: Collection[Member], scope: PersonalScope) -> WorkspacesOfPerson:
    """By the names of butlers; `members` may have options that name directories."""
    found = await messages.list_workspaces(database, scope)
    named = {one.name: f"{one.options['workspace']}" for one in members if one.options.get("workspace") is not None}
    alone = [one.butler for one in found if one.alone and not one.busy]
    return WorkspacesOfPerson(
        tuple(butler for butler in alone if butler not in named),
        tuple(one.butler for one in found if not one.alone),
        tuple(sorted({named[butler] for butler in alone if butler in named})),
    )


async def order_files(database: Database, channels: Channels, scope: PersonalScope, alone: Sequence[str]) -> None:
    """Order of all workers that the person's files go, and the workspaces of these butlers. May be repeated."""
    at_once = [f"{escape(workspace_name(one))}/*" for one in alone]  # before anybody else writes to them
    await erased_files.order(database, [*at_once, *_private_files(scope)])
    batch: list[str] = []
    async for pattern in _patterns_of_messages(database, channels, scope):
        batch.append(pattern)
        if len(batch) >= _AT_ONCE:
            await erased_files.order(database, _each_once(batch))
            batch = []
    await erased_files.order(database, _each_once(batch))


async def order_results(database: Database, scope: PersonalScope) -> None:
    """Order it once more of what the person alone read: results of tools go only when no history has their turns."""
    await erased_files.order(database, _private_files(scope))


def _private_files(scope: PersonalScope) -> list[str]:
    return [_files_of(directory_of_person(key), "") for key in scope.keys]


def _each_once(patterns: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(patterns))


async def _patterns_of_messages(database: Database, channels: Channels, scope: PersonalScope) -> AsyncIterator[str]:
    """Files of messages are kept for those who read the turn, such as a group, which others have sent files to."""
    async for message in messages.read_messages_with_files(database, scope):
        try:
            envelope = stored_envelope(message.envelope)
        except msgspec.ValidationError:  # of another release
            continue
        attachments = envelope.payload.attachments
        reader = _reader_of(message, envelope, channels)
        blobs = [blob for one in attachments if (blob := stored_blob(one)) is not None]
        others: set[bytes] = set()
        if blobs and reader.authentic and not reader.private:
            others = await messages.files_of_others(database, scope, blobs, message.conversation)
        for digest in sorted(_digests_of(attachments) - {blob.hex()[:DIGITS] for blob in others}):
            yield _files_of(directory_of(reader, message.request_id), digest)


def _reader_of(message: MessageWithFiles, envelope: Envelope, channels: Channels) -> Reader:
    nobody = SystemId("")  # whose directory it is makes no difference
    return reader_among(nobody, message.conversation, envelope, message.facts, channels[message.channel])


def _digests_of(attachments: Sequence[Attachment]) -> set[str]:
    """The rest of a file's name is the sender's, and is not kept in an order."""
    return {digest for one in attachments if (digest := digest_in_inbox(one)) is not None}


def _files_of(readers: str, digest: str) -> str:
    return f"{DIRECTORY}/*/{readers}/{INBOX}/{digest}*"
