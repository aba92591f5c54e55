"""Order where a model decides: nothing overtakes what waits, whatever a door believes, and nobody else waits for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final


from switchboard.domain.routing import Team
from switchboard.store.inbox import Acceptance
from tests.hands import assert_balanced, at_work, settled
from tests.integration.test_classify import Held, Model, chosen, delivered, to_a
from tests.lab import ROOT, Lab, butler, lab, rule, submission, to
from tests.waiting import eventually

TEAM: Final = Team(ROOT, None, members=(butler("a"), butler("b")))
ASKS: Final = replace(TEAM, classify=True)
TO_B: Final = rule(ROOT, [to("System1/b")], chat_type="private")
EVERY_SECOND: Final = [{"chat_type": "private"} if n % 2 else {} for n in range(20)]


async def send(parts: Lab, text: str, sender: str = "x", **more: str) -> Acceptance:
    return await parts.accept.accept(submission(text, sender=sender, **more))


@asynccontextmanager
async def two_doors(url: str) -> AsyncIterator[tuple[Lab, Lab]]:
    """One that knows that the team asks a model, and one that has not heard of it."""
    async with lab(url, [TEAM], [TO_B]) as stale, lab(url, [ASKS], [TO_B], classifying=True) as knows:
        assert (stale.rule_book.queued, knows.rule_book.queued) == (False, True)
        yield stale, knows


async def test_a_door_that_has_not_heard_that_a_team_asks_a_model_overtakes_nothing(database_url: str) -> None:
    async with two_doors(database_url) as (stale, knows):
        assert (await send(knows, "1")).waits
        assert (await send(stale, "2", chat_type="private")).waits
        assert (await send(stale, "3", pinned="System1/b")).waits
        other = await send(stale, "o", sender="other", chat_type="private")
        assert not other.waits, "nobody waits in that conversation"
        assert await knows.count("select count(*) from lane where kind = 'route'") == 1, "and no lane is made for it"
        [again, mixed] = [
            one
            for one in await stale.accept.accept_all(
                [submission("4", sender="x", chat_type="private"), submission("o", sender="y", chat_type="private")]
            )
            if isinstance(one, Acceptance)
        ]
        assert (again.waits, mixed.waits) == (True, False)
        async with at_work(knows.worker(classifier=Model(to_a))):
            await eventually(lambda: settled(knows))
        assert await delivered(knows) == [("a", "1"), ("b", "2"), ("b", "3"), ("b", "4")]
        assert not (await send(stale, "5", chat_type="private")).waits, "nobody is before it any more"
        await assert_balanced(knows)


async def test_through_two_doors_one_of_them_stale_every_message_follows_the_one_before(database_url: str) -> None:
    """As long as the first waits: doors take turns, and the stale one's own decision never counts."""
    model = Held()
    async with two_doors(database_url) as (stale, knows):
        async with at_work(knows.worker(classifier=Model(model))):
            assert (await send(knows, "0")).waits
            await model.begun.wait()
            for n in range(1, 20):
                assert (await send((stale, knows)[n % 3 == 0], str(n), **EVERY_SECOND[n])).waits
            assert await delivered(knows) == []
            model.go.set()
            await eventually(lambda: settled(knows))
        assert [int(text) for _, text in await delivered(knows)] == list(range(20))
        await assert_balanced(knows)
