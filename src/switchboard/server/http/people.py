"""`/v1/people`: which handles are one person. Operators only. Next: `app/people/service.py`."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Depends, Request, Response
from fastapi.responses import StreamingResponse

from switchboard.app.access import Principal
from switchboard.app.people.personal import PersonalDataService
from switchboard.app.people.service import PEOPLE, PeopleService
from switchboard.server.contracts.base import Cursor, Limit, Word
from switchboard.server.contracts.people import (
    DeletedPerson,
    Erasure,
    ErasureBody,
    PersonBody,
    PersonDetail,
    PersonGroupsBody,
    PersonHandleBody,
    PersonNameBody,
    PersonPage,
)
from switchboard.server.http.lines import NDJSON, stream_lines
from switchboard.server.http.parameters import router_of
from switchboard.server.http.services import Parts, Responses, answer, needs, operation, page
from switchboard.server.services import ServiceFactory

router = router_of("people", prefix="/v1/people")
PEOPLE_SERVICE: Final = ServiceFactory(lambda services: PeopleService(services.runtime))
_PERSONAL: Final = ServiceFactory(lambda services: PersonalDataService(services.runtime))
_LINE: Final = {"type": "object", "properties": {"kept_in": {"type": "string"}, "exported": {"type": "integer"}}}
_LINES: Final[Responses] = {
    200: {
        "description": "Lines of JSON: what is kept, each with `kept_in`; the last one has the number of all.",
        "content": {NDJSON: {"schema": _LINE}},
    }
}

Operator = Annotated[Principal, Depends(needs(PEOPLE))]


@router.get("", **operation("list_people", "List persons", PersonPage, needing=PEOPLE))
async def list_people(parts: Parts, limit: Limit = 100, cursor: Cursor | None = None) -> Response:
    """By id, with their handles and groups."""
    return answer(page("people", await parts.of(PEOPLE_SERVICE).list_people(limit=limit, cursor=cursor)))


@router.post("", **operation("create_person", "Create a person", PersonDetail, 409, status=201))
async def create_person(caller: Operator, parts: Parts, body: PersonBody) -> Response:
    """Without handles and groups, which are added one by one."""
    return answer({"person": await parts.of(PEOPLE_SERVICE).create(caller, body.person_id, body.name)}, 201)


@router.get("/{person_id}", **operation("get_person", "Get a person", PersonDetail, 404, needing=PEOPLE))
async def get_person(parts: Parts, person_id: Word) -> Response:
    """With handles and groups."""
    return answer({"person": await parts.of(PEOPLE_SERVICE).get_person(person_id)})


@router.post("/{person_id}/rename", **operation("rename_person", "Rename a person", PersonDetail, 404))
async def rename_person(caller: Operator, parts: Parts, person_id: Word, body: PersonNameBody) -> Response:
    """The id stays, and with it all rules that name the person."""
    return answer({"person": await parts.of(PEOPLE_SERVICE).rename(caller, person_id, body.name)})


@router.post("/{person_id}/link", **operation("link_handle", "Link a handle to a person", PersonDetail, 404, 409))
async def link_handle(caller: Operator, parts: Parts, person_id: Word, body: PersonHandleBody) -> Response:
    """It lets nobody in, and changes nothing that is stored. 409 if it is a handle of another person."""
    handle = (body.channel, body.endpoint, body.identity)
    return answer({"person": await parts.of(PEOPLE_SERVICE).link(caller, person_id, handle)})


@router.post("/{person_id}/unlink", **operation("unlink_handle", "Unlink a handle", PersonDetail, 404))
async def unlink_handle(caller: Operator, parts: Parts, person_id: Word, body: PersonHandleBody) -> Response:
    """Messages that come in from now on are not the person's."""
    handle = (body.channel, body.endpoint, body.identity)
    return answer({"person": await parts.of(PEOPLE_SERVICE).unlink(caller, person_id, handle)})


@router.put("/{person_id}/groups", **operation("put_person_groups", "Set the groups of a person", PersonDetail, 404))
async def put_groups(caller: Operator, parts: Parts, person_id: Word, body: PersonGroupsBody) -> Response:
    """The person is in these groups and in no others. A group exists as long as somebody is in it."""
    return answer({"person": await parts.of(PEOPLE_SERVICE).put_groups(caller, person_id, body.groups)})


@router.delete("/{person_id}", **operation("delete_person", "Delete a person", DeletedPerson, 404))
async def delete_person(caller: Operator, parts: Parts, person_id: Word) -> Response:
    """The handles belong to nobody then; nothing that was said is erased."""
    await parts.of(PEOPLE_SERVICE).delete(caller, person_id)
    return answer({"person_id": person_id})


@router.post(
    "/{person_id}/export",
    response_class=StreamingResponse,
    **operation("export_person", "Export what is kept of a person", None, 404, more=_LINES),
)
async def export_person(request: Request, caller: Operator, parts: Parts, person_id: Word) -> Response:
    """Everything that their handles have left, as they are linked now. It is audited."""
    lines = await parts.of(_PERSONAL).export(caller, person_id)
    return StreamingResponse(stream_lines(request, parts, lines, "export"), media_type=NDJSON)


@router.post("/{person_id}/erase", **operation("erase_person", "Erase what is kept of a person", Erasure, 404))
async def erase_person(caller: Operator, parts: Parts, person_id: Word, body: ErasureBody) -> Response:
    """Words and files go; ids, decisions and the person stay. It can be repeated, and must be for what was open."""
    return answer({"erasure": await parts.of(_PERSONAL).erase(caller, person_id, dry_run=body.dry_run)})
