"""The laws of `CollectionServer`, as checks that a test of a server runs.

    @pytest.mark.parametrize("check", COLLECTION_CHECKS, ids=lambda check: check.__name__)
    async def test_my_server(check: CollectionCheck) -> None:
        await check(CollectionSubject(server, url, make))

A check raises `AssertionError` that says what went wrong. Next: `ports/collection_server.py`, the contract that is
checked here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final
from uuid import uuid4

from msgspec import Struct

from switchboard.core.text.compared_lines import has_all_lines
from switchboard.core.text.content_lines import content_lines
from switchboard.ports.collection_server import (
    CollectionServer,
    ServerError,
    ServerListing,
    ServerObject,
    ServerState,
)

MakeObject = Callable[[str, str], bytes]
"""The bytes of an object with a UID and a title."""


class CollectionSubject(Struct, frozen=True):
    """A server, and a collection of it into which nobody else writes. `settle` makes what was written show in lists."""

    server: CollectionServer
    collection: str
    make: MakeObject
    settle: Callable[[], None] = lambda: None

    async def create(self, title: str, uid: str = "") -> ServerObject:
        """An object with a proposed name of its own, which lists show."""
        uid = uid or str(uuid4())
        made = await self.server.create_object(self.collection, ServerObject(uid, "", self.make(uid, title)))
        self.settle()
        return made

    async def replace(self, old: ServerObject, title: str) -> ServerObject:
        """The same with other bytes."""
        [uid] = [line.value for line in content_lines(old.data) if line.name == "UID"]
        made = await self.server.replace_object(self.collection, old, self.make(uid, title))
        self.settle()
        return made

    async def delete(self, old: ServerObject) -> None:
        """It is gone, and lists show it."""
        await self.server.delete_object(self.collection, old)
        self.settle()

    async def everything(self) -> ServerListing:
        """All objects."""
        return await self.server.list_everything(self.collection)


CollectionCheck = Callable[[CollectionSubject], Awaitable[None]]


async def _state_of(work: Awaitable[object]) -> ServerState | None:
    """What was wrong; None: nothing."""
    try:
        await work
    except ServerError as error:
        return error.state
    return None


async def is_found(subject: CollectionSubject) -> None:
    """The collection is among those of the account, once."""
    keys = [one.key for one in await subject.server.find_collections()]
    assert len(keys) == len({*keys}), f"collections are found twice: {keys}"
    urls = [one.url for one in await subject.server.find_collections()]
    assert subject.collection in urls, f"{subject.collection} is not among {urls}"


async def lists_and_reads_everything(subject: CollectionSubject) -> None:
    """A listing of everything is whole, however many pages it has, and what it names can be read."""
    made = [await subject.create(f"Number {number}") for number in range(5)]
    listing = await subject.everything()
    assert listing.whole, "a list of everything must say that it is whole"
    assert listing.complete, "a list of everything must come to its end"
    assert {one.name: one.etag for one in made}.items() <= listing.etags.items(), "names and ETags are those of writes"
    await subject.delete(made[0])
    names = [*(one.name for one in made), "no-such-object"]
    contents = await subject.server.read_objects(subject.collection, names)
    assert {one.name for one in contents.objects} == {one.name for one in made[1:]}
    assert contents.gone == {made[0].name, "no-such-object"}
    for one in made[1:]:
        read = await subject.server.read_object(subject.collection, one.name)
        assert (read.name, read.etag) == (one.name, one.etag)
        assert has_all_lines(read.data, one.data), "an object is read as it was written"
    gone = subject.server.read_object(subject.collection, made[0].name)
    assert await _state_of(gone) == "missing"


async def tells_what_has_changed(subject: CollectionSubject) -> None:
    """Since a token: what was created, changed and deleted, and then nothing."""
    old, changed, deleted = [await subject.create(title) for title in ("Old", "Changed", "Deleted")]
    token = (await subject.everything()).cursor
    assert token, "a listing of everything has a token"
    new = await subject.create("New")
    changed = await subject.replace(changed, "Changed again")
    await subject.delete(deleted)
    listing = await subject.server.list_changes(subject.collection, token)
    if listing.whole:  # a server may always tell everything
        assert {old.name, new.name, changed.name} <= listing.etags.keys()
        assert deleted.name not in listing.etags
    else:
        assert dict(listing.etags) == {new.name: new.etag, changed.name: changed.etag}
        assert listing.gone == {deleted.name}
    again = await subject.server.list_changes(subject.collection, listing.cursor)
    assert again.whole or not (again.etags or again.gone), "nothing has changed since"


async def lists_everything_if_a_token_is_lost(subject: CollectionSubject) -> None:
    """A token that the server does not know is no error, and what is listed then is whole."""
    one = await subject.create("One")
    for token in ("", "no-such-token"):
        listing = await subject.server.list_changes(subject.collection, token)
        assert listing.whole, f"the token {token!r} must give everything"
        assert listing.etags[one.name] == one.etag


async def creates_once(subject: CollectionSubject) -> None:
    """Whoever does not know what has become of a creation repeats it, and finds the object by the proposed name."""
    server, url, uid = subject.server, subject.collection, str(uuid4())
    new = ServerObject(uid, "", subject.make(uid, "Once"))
    first, again = [await server.create_object(url, new) for _ in range(2)]
    assert (first.name, first.etag) == (again.name, again.etag), "it was created twice"
    found = await server.read_object(url, uid)
    assert (found.name, found.etag) == (first.name, first.etag), "it is found by the proposed name"
    other = ServerObject(uid, "", subject.make(uid, "Something else"))
    assert await _state_of(server.create_object(url, other)) == "changed"
    assert has_all_lines((await server.read_object(url, first.name)).data, new.data)
    subject.settle()
    await subject.delete(first)
    renewed = await server.create_object(url, ServerObject(first.name, "", new.data))  # as an undo does
    subject.settle()
    assert (await subject.everything()).etags[renewed.name] == renewed.etag
    assert (await server.read_object(url, first.name)).etag == renewed.etag, "it is found by the name that it had"


async def loses_nothing_of_others(subject: CollectionSubject) -> None:
    """A write that names an old state changes nothing; without a state, nothing is written at all."""
    server, url = subject.server, subject.collection
    ours = await subject.create("Ours")
    theirs = await subject.replace(ours, "Theirs")
    assert theirs.etag != ours.etag
    assert await _state_of(server.replace_object(url, ours, subject.make("x", "Ours again"))) == "changed"
    assert await _state_of(server.delete_object(url, ours)) == "changed"
    unknown = ServerObject(ours.name, "", b"")
    assert await _state_of(server.replace_object(url, unknown, subject.make("x", "Blind"))) == "unprotected"
    assert await _state_of(server.delete_object(url, unknown)) == "unprotected"
    assert has_all_lines((await server.read_object(url, ours.name)).data, theirs.data), "what others wrote is lost"
    await subject.delete(theirs)
    assert await _state_of(server.delete_object(url, theirs)) is None, "that it is gone already is success"
    assert await _state_of(server.replace_object(url, theirs, subject.make("x", "Late"))) in ("changed", "missing")


READING_CHECKS: Final[tuple[CollectionCheck, ...]] = (
    is_found,
    lists_and_reads_everything,
    tells_what_has_changed,
    lists_everything_if_a_token_is_lost,
)
"""Of servers that are only read, too."""
COLLECTION_CHECKS: Final = (*READING_CHECKS, creates_once, loses_nothing_of_others)
