"""The household of docs/household.md, with real servers of calendars and mail: what Ann asks for on one evening.

The files are those that a newcomer copies. `switchboard up` runs in the copy, with accounts on Radicale and on Dovecot,
with Telegram, and with an SMTP server for the invitation; only the model is scripted.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from email import message_from_bytes
from email.message import Message
from email.utils import parseaddr
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

import pytest

from switchboard.testing.bot_api import ANN, BotApi
from switchboard.testing.scripted_llm import Call, Reply, Request, ScriptedLlm
from tests.dav_servers import card, radicale
from tests.households import NOOR, Household, accounts_of_ann, bot_at, opened_household, sender_at
from tests.mail_servers import Dovecot, Postbox, running_dovecot, running_smtp
from tests.mailboxes import a_mail, deliver
from tests.places import passable
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
BEN: Final = "ben@friends.example"
ZONE: Final = ZoneInfo("Europe/Berlin")
FREE: Final = "Am I free on Thursday afternoon? If so, invite Ben for an hour."
BOILER: Final = "Who wrote to me about the boiler last month, and what did I answer?"
HAZELNUTS: Final = "Remember that Noor is allergic to hazelnuts."
ASKED_LATER: Final = "What may Noor not have?"
TOMATOES: Final = "Remind me tonight to water the tomatoes."
SAID: Final = "water the tomatoes"


# What the model does --------------------------------------------------------------------------------------------------


def next_thursday() -> date:
    """Tomorrow at the earliest."""
    today = datetime.now(ZONE).date()
    return today + timedelta(days=(3 - today.weekday() - 1) % 7 + 1)


def tonight() -> str:
    """The first full minute that is not over before the call arrives."""
    return f"{datetime.now(ZONE) + timedelta(seconds=65):%A %Y-%m-%d %H:%M}"


def find_time_for_ben(results: list[str]) -> Reply:
    """`results`: of its last calls."""
    if not results:
        looked = Call("calendar_free_busy", {"day": f"{next_thursday()}", "part": "afternoon"})
        return Reply(calls=(Call("contacts_resolve", {"who": "Ben"}), looked))
    if len(results) == 2:
        start = f"Thursday {next_thursday()} 14:00"
        meeting = {"title": "Coffee", "start": start, "end": "15:00", "invite": ["Ben"]}
        return Reply(calls=(Call("calendar_create", meeting),))
    return Reply(f"Invited: {results[0]}")


def look_for_the_boiler(results: list[str]) -> Reply:
    """The same; what is no JSON is a refusal."""
    if not results:
        search = {"words": "boiler", "since": "last month", "until": "last month"}
        return Reply(calls=(Call("email_search", search),))
    if not results[0].startswith("{"):
        return Reply(results[0])
    told = [json.loads(one) for one in results]
    if "mails" in told[0]:
        return Reply(calls=tuple(Call("email_read", {"mail": one["id"]}) for one in told[0]["mails"]))
    said = (("you" if "sent_by_the_person" in one else one["from"]) + f": {one['text']}" for one in reversed(told))
    return Reply("\n".join(said))


def home(request: Request) -> Reply:
    """Does what each sentence asks for, and repeats what its tools have found."""
    [*_, asked] = [said.text for said in request.messages if said.role == "user"]
    results = [said.text for said in request.results]
    if "Ben" in asked:
        return find_time_for_ben(results)
    if "boiler" in asked:
        return look_for_the_boiler(results)
    if results:
        return Reply(results[-1])
    if ASKED_LATER in asked:  # and maybe what is known already
        return Reply(calls=(Call("memory_search", {"query": "Noor allergic"}),))
    if "hazelnuts" in asked:
        return Reply(calls=(Call("remember", {"quote": "Noor is allergic to hazelnuts"}),))
    return Reply(calls=(Call("schedule_at", {"time": tonight(), "text": SAID}),))


# The evening ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Evening:
    """The household, and what people write to it."""

    household: Household
    api: BotApi
    postbox: Postbox

    async def say(self, text: str, user: Any = ANN, begins: str = "") -> str:
        """The first answer that begins so; the reminder may come in between."""
        known = len(self.api.texts)

        def answers() -> list[str]:
            return [one for one in self.api.texts[known:] if one != SAID and one.startswith(begins)]

        self.api.people.say(text, user=user)
        await asyncio.wait_for(self.api.until(lambda: bool(answers())), 60)
        return answers()[0]

    @property
    def invited(self) -> list[tuple[str, object]]:
        """To whom mails were sent, and what the calendar in each asks for."""
        mails = [message_from_bytes(one) for one in self.postbox.mails]
        return [(parseaddr(mail["to"])[1], part.get_param("method")) for mail in mails for part in calendars_in(mail)]


def calendars_in(mail: Message) -> list[Message]:
    """Its parts that programs of calendars read."""
    return [one for one in mail.walk() if one.get_content_type() == "text/calendar"]


def fill_mailbox(dovecot: Dovecot) -> None:
    """A question and its answer of last month, and something else."""
    first = datetime.now(UTC).replace(day=1, hour=12, minute=0, second=0, microsecond=0)
    sent = (first - timedelta(days=1)).replace(day=15)
    deliver(dovecot, dovecot.user, a_mail("leak", "Our boiler", "The boiler leaks.", sent))
    deliver(dovecot, dovecot.user, a_mail("garden", "Our garden", "The garden is dry.", sent))
    fields = {"from": "Ann <ann@home.example>", "to": "ben@x.example"}
    later = sent + timedelta(hours=3)
    answer = a_mail("answer", "Re: Our boiler", "Come on Friday at 9.", later, answers=["leak"], **fields)
    deliver(dovecot, dovecot.user, answer, folder="Sent")


@contextmanager
def begun_evening(place: Path, api: BotApi, llm: ScriptedLlm) -> Iterator[Evening]:
    with radicale() as diary, running_dovecot() as dovecot, running_smtp() as (postbox, smtp):
        diary.put("ben.vcf", card("Ben Baker", f"EMAIL:{BEN}"))
        fill_mailbox(dovecot)
        model = {"name": "house", "kind": "openai", "model": "m", "base_url": f"{llm.url}/v1", "context": 200_000}
        channels = {"telegram": bot_at(api.url), "ann": sender_at(dovecot, smtp)}
        with opened_household(place, accounts_of_ann(diary, dovecot, "mail"), [model], channels) as household:
            yield Evening(household, api, postbox)


async def test_four_sentences_of_one_evening() -> None:
    with passable("switchboard household ") as place:
        async with BotApi() as api, ScriptedLlm(home) as llm:
            beginning = begun_evening(place, api, llm)
            evening = await asyncio.to_thread(beginning.__enter__)
            try:
                await the_evening(evening, llm)
            finally:
                await asyncio.to_thread(beginning.__exit__, None, None, None)


async def the_evening(evening: Evening, llm: ScriptedLlm) -> None:
    assert SAID in await evening.say(TOMATOES)
    await evening.say(HAZELNUTS)

    async def is_read() -> bool:
        return await asyncio.to_thread(evening.household.is_read)

    async def is_invited() -> bool:
        return len(evening.postbox.mails) > 0

    await eventually(is_read, within=60)
    request = await evening.say(FREE)
    assert BEN in request
    assert f"Thursday {next_thursday()} 14:00-15:00" in request
    assert evening.invited == []
    [approval] = re.findall(r"/approve ([0-9a-f]{8})", request)
    assert '"created":"Coffee"' in await evening.say(f"/approve {approval}", begins="Invited: ")
    await eventually(is_invited, within=60)
    assert evening.invited == [(BEN, "REQUEST")]

    answered = await evening.say(BOILER)
    assert answered == "Ben ben@x.example: The boiler leaks.\nyou: Come on Friday at 9."
    await evening.say("/new")
    assert "Noor is allergic to hazelnuts" in await evening.say(ASKED_LATER)
    await noor_is_told_nothing(evening, llm)
    await asyncio.wait_for(evening.api.until(lambda: SAID in evening.api.texts), 100)


async def noor_is_told_nothing(evening: Evening, llm: ScriptedLlm) -> None:
    """Of Ann's mailbox, and of what Ann said alone with the butler."""
    first = len(llm.requests)
    assert "leaks" not in await evening.say(BOILER, user=NOOR)
    assert "hazelnuts" not in await evening.say(ASKED_LATER, user=NOOR)
    sent = json.dumps([dict(one.body) for one in llm.requests[first:]])
    assert not re.search("leaks|hazelnuts", sent)
