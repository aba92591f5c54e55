"""The contacts of somebody, for modules that ask whom a name means."""

from __future__ import annotations

from switchboard.domain.json_values import JsonObject
from switchboard.ports.tools import ToolScope


class AddressBook:
    """Who is meant by a name: two Bens, one Noor."""

    async def resolve(self, scope: ToolScope, who: str) -> JsonObject:  # noqa: ARG002
        people: list[JsonObject] = [
            {"id": "home/b/1", "name": "Ben Ado", "emails": ["ben@ado.example"]},
            {"id": "home/b/2", "name": "Ben Ruiz", "emails": [{"value": "ben@ruiz.example", "label": "work"}]},
            {"id": "home/b/3", "name": "Noor", "emails": ["noor@home.example"]},
        ]
        found = [one for one in people if who.lower() in (one["id"], *one["name"].lower().split())]
        return {"certain": len(found) == 1, "people": found}
