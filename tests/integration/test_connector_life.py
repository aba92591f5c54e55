"""The life of an account, hours of it in virtual time: outages, rivals, patience, typing, and what is told of them."""

from __future__ import annotations

from dataclasses import replace

from switchboard.testing.connectors import ScriptedPlatform
from switchboard.testing.connectors.platform import CAPABILITIES
from switchboard.testing.connectors.running import connector, scripted, until
from tests.virtual_time import in_no_time, passes

TYPING = replace(CAPABILITIES, typing_s=5.0)


def test_typing_is_shown_while_a_turn_runs_renewed_in_time_and_ends_with_the_reply() -> None:
    async def main() -> None:
        platform, switchboard = ScriptedPlatform(TYPING), scripted()
        async with connector(platform.configured, switchboard):
            await platform.says("t", "hello")
            await until(lambda: bool(switchboard.accepted), "the message is accepted")
            switchboard.answering = {"t": {"thread": "t"}}
            await passes(1.5)
            assert platform.typing == [{"thread": "t"}], "it is shown soon"
            await passes(20.0)
            assert 5 <= len(platform.typing) <= 6, "it is shown again every 4 s, before it ends"
            outbox_id = switchboard.reply(switchboard.accepted[0], "hi")
            await until(lambda: switchboard.outcome(outbox_id) == "sent", "the reply is sent")
            shown = len(platform.typing)
            switchboard.answering = {}
            await passes(60.0)
            assert len(platform.typing) == shown, "it ends with the reply"

    in_no_time(main())


def test_an_account_asks_no_more_often_for_many_messages_than_for_one_where_turns_run() -> None:
    async def main() -> int:
        platform, switchboard = ScriptedPlatform(TYPING), scripted()
        async with connector(platform.configured, switchboard):
            await passes(10.0)
            before = switchboard.requests.count("POST /v1/connectors/lease")
            for number in range(100):
                await platform.says(f"t{number % 7}", f"message {number}")
                await passes(0.1)
            return switchboard.requests.count("POST /v1/connectors/lease") - before

    assert in_no_time(main()) <= 11


def test_a_platform_without_typing_is_never_asked_and_one_that_fails_at_it_harms_nobody() -> None:
    async def main(typing_s: float) -> ScriptedPlatform:
        platform, switchboard = ScriptedPlatform(replace(CAPABILITIES, typing_s=typing_s)), scripted()
        switchboard.answering = {"t": {"thread": "t"}}
        async with connector(platform.configured, switchboard) as running:
            await passes(10.0)
            async with platform.away():
                await passes(1.0)
            await platform.says("t", "hello")
            await until(lambda: bool(switchboard.accepted), "the message is accepted")
            assert not running.task.done()
        return platform

    assert in_no_time(main(0.0)).typing == []
    assert in_no_time(main(5.0)).typing
