"""The shapes of requests and answers about persons. Next: `app/people/service.py`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from switchboard.domain.people import ErasedData, ShownPerson
from switchboard.server.contracts.base import Body, Line, ResponseBody, Word


class PersonBody(Body):
    """A new person. The id never changes; the name may."""

    person_id: Word
    name: Line


class PersonNameBody(Body):
    """What the person is called from now on."""

    name: Line


class PersonHandleBody(Body):
    """What a channel calls a person. `endpoint` counts only where an identity means somebody at one endpoint."""

    channel: Word
    endpoint: Word | None = None
    identity: Word


class PersonGroupsBody(Body):
    """All groups of the person."""

    groups: Annotated[list[Word], Field(max_length=50)]


class ErasureBody(Body):
    """`dry_run`: only say how much there is."""

    dry_run: bool = False


class Erasure(ResponseBody):
    """What was erased, or would be; what must end first, and what is out of reach."""

    erasure: ErasedData


class PersonDetail(ResponseBody):
    """`proves` of a handle is false where nobody vouches for senders: it is only listed."""

    person: ShownPerson


class PersonPage(ResponseBody):
    """By id. `next_cursor` is null on the last page."""

    people: list[ShownPerson]
    next_cursor: str | None


class DeletedPerson(ResponseBody):
    """Who is known no longer."""

    person_id: str
