"""Laws of an account as a whole: outages, two processes, secrets, and few requests. Next: `running.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from msgspec import structs

from switchboard.connectors.kernel.accounts import Configured
from switchboard.domain.json_values import JsonObject
from switchboard.testing.connectors.clock import passes
from switchboard.testing.connectors.driver import CountingDriver, Driver, LeavingDriver
from switchboard.testing.connectors.expecting import answered, none_lost_or_doubled, same, says
from switchboard.testing.connectors.killing import became
from switchboard.testing.connectors.running import Death, connected, connector, listening, scripted, texts, until

_OUTAGE_S: Final = 90.0
_SOON_S: Final = 5.0
_IDLE_S: Final = 300.0
_TTL_S: Final = 6.0
_LEASE: Final = "POST /v1/connectors/lease"
_NEXT: Final = "POST /v1/outbox/next"
_INGEST: Final = "/v1/ingest/batch"


async def check_an_outage_of_the_switchboard_loses_nothing(driver: Driver) -> None:
    """The switchboard has no room for 90 s (429), and is unavailable for 90 s (503); then the connector ends while it
    is unavailable, and the next one starts from the beginning."""
    switchboard, said = scripted(), list[str]()

    async def say() -> None:
        said.append(f"message {len(said) + 1}")
        await driver.says("t", said[-1])

    async def away(status: int) -> None:
        """The outage begins with the refusal of a message, so that the connector certainly holds one.

        The rest is available until then: a connector that cannot save the cursor of earlier messages receives nothing.
        """
        switchboard.outage, switchboard.closed = status, {_INGEST}
        await say()
        await until(lambda: any(said[-1].encode() in body for body in switchboard.told), "a message is refused")
        switchboard.unavailable = True
        await passes(_SOON_S)

    async def back() -> None:
        switchboard.unavailable, switchboard.closed = False, set()
        await until(lambda: len(switchboard.accepted) == len(said), "all are accepted", more_s=_OUTAGE_S)
        await until(
            lambda: not switchboard.posted.events, "none of them is kept as pushed any longer", more_s=_OUTAGE_S
        )

    async with connector(driver.configured, switchboard) as running:
        await until(lambda: _NEXT in switchboard.requests, "the account is open")
        for status in (429, 503):
            await away(status)
            await say()
            await say()
            await passes(_OUTAGE_S)
            await back()
        await away(503)
        await running.killed()
    switchboard.cursor = None
    async with connector(driver.configured, switchboard):
        await back()
    same(texts(switchboard.accepted), said)


async def check_an_outage_of_the_platform_loses_nothing(driver: LeavingDriver) -> None:
    """The platform is out of reach for 90 s while an answer waits; then this arrives once, and so do people's messages.

    An answer that was about to be sent waits until its lease ends; then a second process sends it.
    """
    await driver.says("t", "message 1")
    switchboard = scripted()
    async with connector(driver.configured, switchboard) as running:
        await until(lambda: bool(switchboard.accepted), "a message is accepted")
        async with driver.away():
            outbox_id = switchboard.reply(switchboard.accepted[0], "an answer")
            before = len(switchboard.heartbeats)
            await until(lambda: "degraded" in _states_of(switchboard.heartbeats[before:]), "it is told of")
            await passes(_OUTAGE_S)
        await driver.says("t", "message 2")
        await until(lambda: len(switchboard.accepted) == 2, "a second message is accepted", more_s=_OUTAGE_S)
        await running.killed()
    async with connector(driver.configured, switchboard):
        await answered(switchboard, outbox_id, more_s=_OUTAGE_S)
    same(texts(switchboard.accepted), ["message 1", "message 2"])
    sent = [one.text for one in await driver.shown()]
    none_lost_or_doubled([became(Death("outage"), "an answer", sent, switchboard.outcome(outbox_id))])


async def check_a_second_process_stands_by_and_takes_over(driver: Driver) -> None:
    """Two processes of an account: one works; only when it has vanished without a word does the other take over."""
    switchboard = scripted(_TTL_S)
    async with connector(driver.configured, switchboard) as first:
        await until(lambda: _NEXT in switchboard.requests, "the first one serves")
        async with connector(driver.configured, switchboard):
            await until(lambda: switchboard.requests.count(_LEASE) >= 2, "the second one asks")
            assert switchboard.requests.count(_NEXT) == 1, "the second one serves beside the first"
            await first.vanished()
            await driver.says("t", "are you there?")
            await until(lambda: bool(switchboard.accepted), "the second one takes over")
    same(texts(switchboard.accepted), ["are you there?"])


async def check_secrets_are_told_to_nobody(driver: Driver) -> None:
    """No log, no request to the switchboard and no description of the account contains one of its secrets, not even a
    refused one."""
    await says(driver, 1)
    switchboard, wrong = scripted(), _with_wrong_secrets(driver.configured)
    with listening() as logged:
        async with connector(driver.configured, switchboard):
            await until(lambda: bool(switchboard.accepted and switchboard.heartbeats), "a heartbeat comes")
            await answered(switchboard, switchboard.reply(switchboard.accepted[0], "hello"))
        if wrong.account.secrets:
            async with connector(wrong, switchboard):
                await until(lambda: any("sign-in refused" in one for one in logged()), "the wrong secret is refused")
    secrets = (*driver.configured.account.secrets.items(), *wrong.account.secrets.items())
    told = {"a request": switchboard.told, "the account": (driver.configured, wrong), "a log": logged()}
    for where, what in told.items():
        leaked = [name for name, value in secrets if value in str(what)]
        assert not leaked, f"{where} tells a secret: {leaked}"


async def check_an_idle_account_asks_for_nothing(driver: CountingDriver) -> None:
    """Apart from long polls, the platform gets less than one request a minute."""
    async with connected(driver.configured) as switchboard:
        await until(lambda: "healthy" in _states_of(switchboard.heartbeats), "the account is open")
        before = driver.asked()
        await passes(_IDLE_S)
        asked = driver.asked() - before
    assert asked < _IDLE_S / 60, f"in {_IDLE_S:.0f} s an idle account has asked {asked} times"


def _states_of(heartbeats: Sequence[JsonObject]) -> list[str]:
    return [beat["state"] for beat in heartbeats]


def _with_wrong_secrets(configured: Configured) -> Configured:
    account = configured.account
    return structs.replace(
        configured,
        account=replace(account, secrets={name: f"not-{value[::-1]}" for name, value in account.secrets.items()}),
    )
