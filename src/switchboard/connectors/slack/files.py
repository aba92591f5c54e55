"""The files of a Slack message, and how they are fetched and sent. Called by `events.py` and `channel.py`.

Without the right scope Slack answers a request for a file with a page to sign in, and status 200. What is sent is
visible only after the last of three calls, so that the ones before can be made again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Final

from switchboard.connectors.kernel.requests import NotAnswered, NotWritten
from switchboard.connectors.slack.api import SlackApi, SlackRefusal
from switchboard.connectors.slack.refusals import is_passing
from switchboard.core.files.blobs import bare_type
from switchboard.core.text.lenient import count
from switchboard.domain.envelope import Attachment
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.ports.connector import FileIn, FileOut, Later
from switchboard.ports.raw import Raw, child, word

CHECK: Final = "check_file_info"
_GONE: Final = {
    "tombstone": "the file was deleted",
    "hidden_by_limit": "the plan of the workspace hides the file",
}
_SPOKEN: Final = frozenset({"slack_audio", "slack_video"})
_REINSTALL: Final = "Slack shows a page to sign in instead of the file: the app lacks files:read, reinstall it"
_HTML: Final = "text/html"
_MOST_SECONDS: Final = 2**31
_MOST_FILES: Final = 20
"""Of one message; people can attach ten."""


def files_of(message: Raw, whole: Mapping[str, Raw]) -> Iterator[tuple[Attachment, FileIn]]:
    """The files of a message, in order; `whole`: those of which the message does not say everything."""
    named = [(file_id, about) for about in _files_in(message) if (file_id := word(about.get("id")))]
    for number, (file_id, about) in enumerate(named):
        yield _file_of(file_id, number, whole.get(file_id, about))


def _files_in(message: Raw) -> list[Raw]:
    found = message.get("files")
    return list(map(child, found[:_MOST_FILES])) if isinstance(found, list) else []


def _file_of(file_id: str, number: int, about: Raw) -> tuple[Attachment, FileIn]:
    size, gone = count(about.get("size")), _GONE.get(word(about.get("mode")) or "")
    spoken, milliseconds = word(about.get("subtype")) in _SPOKEN, count(about.get("duration_ms"))
    attachment = Attachment(
        media_type=word(about.get("mimetype")) or "application/octet-stream",
        filename=word(about.get("name")),
        size_bytes=size,
        source_attachment_id=file_id,
        unavailable=gone,
        voice=True if spoken else None,
        seconds=min(-(-milliseconds // 1000), _MOST_SECONDS) or None,
    )
    handle: JsonObject = {"id": file_id, "url": _url_of(about), "size": size, "media_type": attachment.media_type}
    return attachment, FileIn(number, handle)


def _url_of(about: Raw) -> str | None:
    return word(about.get("url_private_download")) or word(about.get("url_private"))


def unknown_files(message: Raw) -> Iterator[str]:
    """The ids of those of which the message does not say what they are."""
    for about in _files_in(message):
        if about.get("file_access") == CHECK and (file_id := word(about.get("id"))):
            yield file_id


async def fetch_file(api: SlackApi, file: FileIn) -> AsyncIterator[bytes]:
    """The bytes of a file. Raises OSError; ValueError if Slack will never deliver it."""
    url, announced = word(file.handle.get("url")), str(file.handle.get("media_type"))
    if url is None:
        about = await _find_file(api, word(file.handle.get("id")) or "")
        url, announced = _url_of(about), word(about.get("mimetype")) or announced
    if url is None:
        raise ValueError("Slack does not say where the file is")
    async with api.download(url) as response:
        if response.status_code in (404, 410):
            raise FileNotFoundError("the file is gone")
        if response.status_code == 429 or response.status_code >= 500:
            raise OSError(f"Slack answers {response.status_code}")
        if not response.is_success:  # a redirection leads to the page where people sign in
            raise ValueError(_REINSTALL if response.is_redirect else f"Slack answers {response.status_code}")
        if _is_page(response.headers.get("content-type", ""), announced):
            raise ValueError(_REINSTALL)
        async for piece in response.aiter_bytes():
            yield piece


async def _find_file(api: SlackApi, file_id: str) -> Raw:
    """What a file is. Raises like `fetch_file`."""
    try:
        return child(await api.read("files.info", {"file": file_id}), "file")
    except SlackRefusal as error:
        if is_passing(error):
            raise OSError(str(error)) from None
        raise ValueError(f"Slack does not say where the file is: {error}") from None


def _is_page(answered: str, announced: str) -> bool:
    return bare_type(answered) == _HTML != bare_type(announced)


async def begin_uploads(api: SlackApi, files: Sequence[FileOut]) -> list[JsonObject] | Later:
    """Upload the files, which nobody sees yet: their ids and titles. Raises SlackRefusal, and the errors of reading."""
    begun = list[JsonObject]()
    for file in files:
        try:
            place = await api.call("files.getUploadURLExternal", _upload_request(file))
            await api.upload(str(place.get("upload_url")), file)
        except (NotWritten, NotAnswered) as error:
            return Later(2.0, f"a file cannot be uploaded: {error}")
        begun.append({"id": place.get("file_id"), "title": file.filename})
    return begun


def _upload_request(file: FileOut) -> JsonMapping:
    return {"filename": file.filename, "length": file.size_bytes}


def shared_file(message: Raw, files: Sequence[FileOut]) -> str | None:
    """The id of the first of these files, if a message has all of them."""
    known = {(one.get("name"), one.get("size")): word(one.get("id")) for one in _files_in(message)}
    ids = [known.get((file.filename, file.size_bytes)) for file in files]
    return ids[0] if all(ids) else None
