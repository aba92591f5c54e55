"""Buttons below replies that tell what people are asked, as the requests stand when a reply is handed to its connector.

`reply.py` calls `Choices.below` with leased replies. A reply to a press gets those of the message that was pressed, and
so says to everybody there how it was decided. Nothing of this is stored. Next: `core/turns/choices.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from msgspec import Struct

from switchboard.core.people.owners import owns
from switchboard.core.people.readers import directory_of_person, person_named
from switchboard.core.turns.choices import Press, choices_of, mark_of, press_of
from switchboard.domain.ledger import LeasedRow, ReplyChoice
from switchboard.domain.routing import SWITCHBOARD, Member, Owner, SystemId
from switchboard.store.database import Database
from switchboard.store.work import approvals as store
from switchboard.store.work.approvals import PressedReply, Told


class Choices(Struct, frozen=True):
    """Looks up what can be chosen; `members`: the present butlers."""

    database: Database
    members: Callable[[], Mapping[SystemId, Member]]

    async def below(self, replies: Sequence[LeasedRow]) -> dict[UUID, tuple[ReplyChoice, ...]]:
        """The choices by reply. One without an entry has none, and changes none."""
        ours = {one.outbox_id: one for one in replies if one.system_id == SWITCHBOARD}
        if not ours:
            return {}
        answered = await store.presses_of(self.database, list(ours))
        presses = {one.outbox_id: press_of(one.pressed) for one in answered if one.pressed is not None}
        wanted = [press.approval_id for press in presses.values() if press is not None]
        told = defaultdict[UUID, list[Told]](list)
        for one in await store.told_with(self.database, list(ours), wanted):
            told[one.told_in].append(one)
        found = {}
        for reply in answered:
            row, press = ours[reply.outbox_id], presses.get(reply.outbox_id)
            asked = told.get(reply.outbox_id, []) if press is None else _asked_below(row, press, told)
            if choices := self._choices(row, reply, asked):
                found[reply.outbox_id] = choices
        return found

    def _choices(self, row: LeasedRow, reply: PressedReply, told: Sequence[Told]) -> tuple[ReplyChoice, ...]:
        person = person_named(row.channel, row.endpoint, row.recipient)
        mine = [one.asked for one in told if self._may_choose(one, row, person)]
        return choices_of(mine, mark_of(person), reply.name)

    def _may_choose(self, told: Told, row: LeasedRow, person: str) -> bool:
        """Whether the person to whom the reply goes may decide in chat: as `decides_in_chat`, and who was asked."""
        asked = told.asked
        if (asked.channel, asked.endpoint, asked.sender) != (row.channel, row.endpoint, row.recipient):
            return False
        if asked.kind == "question":
            return True
        owner = Owner(asked.channel, asked.endpoint, asked.sender)
        return owns(owner, self.members().get(SystemId(asked.system_id))) and told.readers == directory_of_person(
            person
        )


def _asked_below(row: LeasedRow, press: Press, told: Mapping[UUID, Sequence[Told]]) -> Sequence[Told]:
    """What the message under the button tells of, if it is one of the conversation of the press."""
    found = next(
        (some for some in told.values() if any(one.asked.approval_id == press.approval_id for one in some)), ()
    )
    return [one for one in found if one.told_lane == row.lane]
