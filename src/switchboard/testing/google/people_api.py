"""The methods of the People API v1 that are played here, strict, with a list that is minutes behind what was written.

`server.py` calls them. In: an `ApiCall`; out: JSON, or `GoogleRefusal`. Next: `listing.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from datetime import UTC, datetime
from typing import Final

from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.testing.google.calendar_api import ApiCall
from switchboard.testing.google.errors import GoogleRefusal
from switchboard.testing.google.listing import TokenList

_FIELDS: Final = frozenset(
    {
        "addresses",
        "biographies",
        "birthdays",
        "emailAddresses",
        "imClients",
        "memberships",
        "metadata",
        "names",
        "nicknames",
        "organizations",
        "phoneNumbers",
        "photos",
        "urls",
    }
)
_MOST: Final = 1_000


class PeopleApi:
    """The contacts of one user. `full_lists`: how many lists of everything are still answered; None: any number."""

    def __init__(self, *, page_size: int = 250) -> None:
        self.people: dict[str, JsonObject] = {}
        self.shown: dict[str, JsonObject] = {}
        """What lists know: see `settle`."""
        self.groups: dict[str, str] = {}
        self.full_lists: int | None = None
        lost = GoogleRefusal(400, "EXPIRED_SYNC_TOKEN", "Sync token is expired. Clear local cache and retry call.")
        self.list = TokenList(lost, page_size)
        self._state = 0

    def settle(self) -> None:
        """Have lists show everything that was written."""
        self.shown = deepcopy(self.people)

    def answer(self, call: ApiCall) -> JsonObject:
        """Raises GoogleRefusal."""
        match call.name:
            case "people.connections.list":
                return self._list_people(call)
            case "people.get":
                _require_fields(call.parameters.get("personFields", ""))
                return self.get(call.path["resourceName"])
            case "people.createContact":
                return self.create(call.require_body())
            case "people.updateContact":
                fields = call.parameters.get("updatePersonFields", "").split(",")
                return self.update(call.path["resourceName"], call.require_body(), fields)
            case "people.deleteContact":
                self.delete(call.path["resourceName"])
                return {}
            case _:
                return self._list_groups()

    def get(self, name: str) -> JsonObject:
        """What is there now."""
        found = self.people.get(name)
        if found is None or found["metadata"].get("deleted"):
            raise GoogleRefusal(404, "notFound", "Requested entity was not found.")
        return deepcopy(found)

    def create(self, body: JsonMapping) -> JsonObject:
        """Its name is the server's."""
        return self._store_person({**deepcopy(dict(body)), "resourceName": f"people/c{7_000_000 + self._state}"})

    def update(self, name: str, body: JsonMapping, fields: Sequence[str]) -> JsonObject:
        """The ETag in the body is compared; only what is named is changed."""
        old = self.get(name)
        _require_fields(",".join(fields))
        if body.get("etag") != old["etag"]:
            message = "Request person.etag is different than the current person.etag. Clear local cache and get it."
            raise GoogleRefusal(400, "failedPrecondition", message)
        return self._store_person({**old, **{field: deepcopy(body.get(field, [])) for field in fields}})

    def delete(self, name: str) -> None:
        """It knows no condition."""
        self.get(name)
        self._store_person({"resourceName": name}, deleted=True)

    def _store_person(self, person: JsonObject, *, deleted: bool = False) -> JsonObject:
        self._state += 1
        name = str(person["resourceName"])
        person["etag"] = f"%EgUBAj0DNy4aBAECBQciDG{self._state:08d}"
        source = {"type": "CONTACT", "id": name.removeprefix("people/"), "etag": f"#{self._state}"}
        stamp = {"updateTime": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"}
        person["metadata"] = {"sources": [{**source, **stamp}], "objectType": "PERSON"}
        if deleted:
            person["metadata"] = {"deleted": True, "objectType": "PERSON"}
        self.people[name] = person
        return deepcopy(person)

    def _list_people(self, call: ApiCall) -> JsonObject:
        _require_fields(call.parameters.get("personFields", ""))
        if not 1 <= int(call.parameters.get("pageSize", "100")) <= _MOST:
            raise GoogleRefusal(400, "invalid", "Page size must be within 1 and 1000.")
        if "syncToken" not in call.parameters and "pageToken" not in call.parameters:
            self._count_full_list()
        state = max(map(_state_in, self.shown.values()), default=0)
        page = self.list.page_of(call.parameters, state, self._select_people)
        answer: JsonObject = {"connections": [*page.items], "totalPeople": len(self.shown)}
        if page.next_page:
            answer["nextPageToken"] = page.next_page
        if page.next_sync and call.is_set("requestSyncToken"):
            answer["nextSyncToken"] = page.next_sync
        return answer

    def _count_full_list(self) -> None:
        """The first page of a list of everything has a small quota of its own."""
        if self.full_lists is not None:
            if not self.full_lists:
                message = "Quota exceeded for quota metric 'FBS quota' and limit 'full sync'."
                raise GoogleRefusal(429, "RATE_LIMIT_EXCEEDED", message, retry_after="60")
            self.full_lists -= 1

    def _select_people(self, since: int | None) -> Sequence[JsonObject]:
        if since is None:
            return [one for one in self.shown.values() if not one["metadata"].get("deleted")]
        return [one for one in self.shown.values() if _state_in(one) > since]

    def _list_groups(self) -> JsonObject:
        own = [
            {"resourceName": name, "etag": "e", "groupType": "USER_CONTACT_GROUP", "name": told, "formattedName": told}
            for name, told in self.groups.items()
        ]
        mine = {"groupType": "SYSTEM_CONTACT_GROUP", "name": "myContacts", "formattedName": "My Contacts"}
        return {"contactGroups": [{"resourceName": "contactGroups/myContacts", **mine}, *own], "totalItems": 1}


def _state_in(person: JsonMapping) -> int:
    return int(str(person["etag"])[-8:])


def _require_fields(mask: str) -> None:
    wrong = [one for one in mask.split(",") if one not in _FIELDS]
    if wrong:
        raise GoogleRefusal(400, "invalid", f'Invalid personFields mask path: "{wrong[0]}".')
