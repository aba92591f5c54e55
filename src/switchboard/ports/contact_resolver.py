"""The port by which a module finds out whom a person means: the module of contacts offers it, others need it.

A manifest names it in its `needs`; the kernel hands over the opened module that has it in its `offers`. Whose contacts
are asked is said by the scope alone. Next: `module.py`.
"""

from __future__ import annotations

from typing import Final, Protocol

from switchboard.domain.json_values import JsonObject
from switchboard.ports.tools import ToolScope

CONTACTS: Final = "contacts.Resolver"
"""The name in `needs` and `offers`."""


class ContactResolver(Protocol):
    """Says who is meant by a name, half a name, a handle, or the id of a contact."""

    async def resolve(self, scope: ToolScope, who: str) -> JsonObject:
        """`certain`, and `people`, the likeliest first: each with `id`, `name` and perhaps `emails` and `also`.

        An entry of `emails` is an address, or an object with the address as its `value`. `also` has the person's other
        cards, with an `id` and perhaps `emails` of their own. Raises LookupError with a sentence, if this caller sees
        no contacts.
        """
        ...
