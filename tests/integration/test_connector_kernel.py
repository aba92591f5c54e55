"""The kernel against the scripted platform and the scripted switchboard: receiving, sending, and what goes wrong."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from msgspec.structs import replace

from switchboard.connectors.kernel import receiving
from switchboard.connectors.kernel.intake import Handling
from switchboard.connectors.kernel.parts import REPEAT_NOTE
from switchboard.ports.connector import Later, Refused, Sent, Uncertain
from switchboard.testing.connectors import ScriptedPlatform, ScriptedSwitchboard
from switchboard.testing.connectors.platform import CAPABILITIES
from switchboard.testing.connectors.running import connector, scripted, texts, until


async def answer(platform: ScriptedPlatform, text: str) -> tuple[ScriptedSwitchboard, str]:
    """One message, and its reply sent; the outcome."""
    await platform.says("t", "hello")
    switchboard = scripted()
    return switchboard, await outcome_of_one(platform, switchboard, text)


async def outcome_of_one(
    platform: ScriptedPlatform,
    switchboard: ScriptedSwitchboard,
    text: str,
    *files: tuple[str, bytes],
    accepted: int = 1,
) -> str:
    """Of a reply to the last message of those that are to be accepted."""
    async with connector(platform.configured, switchboard):
        await until(lambda: len(switchboard.accepted) >= accepted, "the messages are accepted")
        outbox_id = switchboard.reply(switchboard.accepted[-1], text, files)
        await until(lambda: bool(switchboard.outcome(outbox_id)), "the reply has an outcome")
    return switchboard.outcome(outbox_id)


async def test_a_reply_goes_to_the_address_of_its_message_as_an_answer() -> None:
    platform = ScriptedPlatform()
    _, outcome = await answer(platform, "**hi**")
    [part] = platform.posts
    assert (outcome, part.address, part.reply_to, part.text) == ("sent", {"thread": "t"}, "1", "hi")


async def test_refused_markup_is_sent_plain_and_a_missing_target_is_left_out() -> None:
    platform = ScriptedPlatform(replace(CAPABILITIES, markup="entities"))
    platform.outcomes = [Refused("can't parse entities", "markup"), Refused("message not found", "target")]
    _, outcome = await answer(platform, "**hi**")
    [part] = platform.posts
    assert (outcome, part.rendered, part.reply_to, part.text) == ("sent", None, None, "hi")


TWO: Final = [("Approve", "t1"), ("Refuse", "t2")]


@pytest.mark.parametrize(
    ("buttons", "text", "refused", "shown"),
    [
        (8, "**pay?**", False, [TWO]),
        (8, "x" * 150, False, [None, TWO]),
        (8, "**pay?**", True, [None]),
        (8, "pay?", True, [None]),
        (1, "pay?", False, [None]),
        (0, "pay?", False, [None]),
    ],
)
async def test_choices_are_buttons_below_the_last_text_if_all_of_them_fit(
    buttons: int, text: str, refused: bool, shown: list[object]
) -> None:
    """Where they cannot, or are refused, the text goes as it is: it says the same."""
    platform, switchboard = ScriptedPlatform(replace(CAPABILITIES, markup="entities", buttons=buttons)), scripted()
    platform.outcomes = [Refused("BUTTON_DATA_INVALID", "markup")] if refused else []
    await platform.says("t", "hello")
    async with connector(platform.configured, switchboard):
        await until(lambda: bool(switchboard.accepted), "the message is accepted")
        outbox_id = switchboard.reply(switchboard.accepted[0], text, choices=TWO)
        await until(lambda: switchboard.outcome(outbox_id) == "sent", "the reply is sent")
    found = [
        None if one.choices is None else [(some.label, some.value) for some in one.choices] for one in platform.posts
    ]
    assert found == shown


async def test_a_reply_that_is_refused_has_failed_and_the_next_one_goes() -> None:
    platform = ScriptedPlatform()
    platform.outcomes = [Refused("blocked by the user", "blocked")]
    _, outcome = await answer(platform, "hi")
    assert (outcome, platform.posts) == ("failed", [])


async def test_whoever_has_blocked_us_is_not_sent_the_other_parts() -> None:
    platform = ScriptedPlatform()
    platform.outcomes = [Refused("blocked by the user", "blocked")]
    switchboard, outcome = await answer(platform, "x" * 300)
    assert (outcome, platform.posts) == ("failed", [])
    assert sum(request.endswith("/parts") for request in switchboard.requests) == 2


async def test_where_we_are_blocked_nothing_is_tried_until_somebody_writes_again() -> None:
    platform, switchboard = ScriptedPlatform(), scripted()
    platform.outcomes = [Refused("blocked by the user", "blocked")]
    await platform.says("t", "hello")
    outcomes = list[str]()
    for number in range(3):  # a process of its own for each reply
        if number == 2:
            await platform.says("t", "are you there?")
        outcomes.append(await outcome_of_one(platform, switchboard, f"reply {number}", accepted=1 + number // 2))
    assert (outcomes, [part.text for part in platform.posts]) == (["failed", "failed", "sent"], ["reply 2"])
    assert (platform.outcomes, switchboard.reasons) == ([], ["blocked"])


async def test_what_was_paused_beyond_its_lease_sends_nothing_when_it_resumes() -> None:
    platform = ScriptedPlatform(replace(CAPABILITIES, on_uncertain="ask"))
    await platform.says("t", "hello")
    switchboard = scripted()
    async with connector(platform.configured, switchboard):
        await until(lambda: bool(switchboard.accepted), "the message is accepted")
        platform.sending = switchboard.leases_end
        outbox_id = switchboard.reply(switchboard.accepted[0], "x" * 300)
        await until(lambda: switchboard.outcome(outbox_id) == "uncertain", "the part that was begun is uncertain")
    assert len(platform.posts) == 1


async def test_other_work_goes_on_while_a_long_text_is_rendered() -> None:
    platform = ScriptedPlatform(replace(CAPABILITIES, text_limit=100_000, markup="html"))
    await platform.says("t", "hello")
    switchboard = scripted()
    seen = 0
    async with connector(platform.configured, switchboard):
        await until(lambda: bool(switchboard.accepted), "the message is accepted")
        outbox_id = switchboard.reply(switchboard.accepted[0], "![" * 20_000)
        while not switchboard.parts(outbox_id):
            await asyncio.sleep(0)
            seen += 1
        await until(lambda: switchboard.outcome(outbox_id) == "sent", "it is sent")
    assert seen > 100


async def test_replies_to_one_sender_are_slowed_and_each_counts_once() -> None:
    platform = ScriptedPlatform(replace(CAPABILITIES, brake=(2, 600.0)))
    platform.outcomes = [Later(0.1), Later(0.1)]
    switchboard = scripted()
    for number in range(3):
        await platform.says("t", f"message {number}")
    async with connector(platform.configured, switchboard):
        await until(lambda: len(switchboard.accepted) == 3, "the messages are accepted")
        replies = [switchboard.reply(message, "hi") for message in switchboard.accepted]
        await until(
            lambda: any("2 replies" in (beat["error_message"] or "") for beat in switchboard.heartbeats), "it brakes"
        )
    assert [switchboard.outcome(one) for one in replies] == ["sent", "sent", ""]


async def test_excess_replies_are_left_to_an_operator_who_can_send_them() -> None:
    platform = ScriptedPlatform(replace(CAPABILITIES, brake=(1, 1.0)))
    switchboard = scripted()
    async with connector(platform.configured, switchboard):
        for number in range(3):
            await platform.says("t", f"message {number}")
        await until(lambda: len(switchboard.accepted) == 3, "the messages are accepted")
        replies = [switchboard.reply(message, "hi") for message in switchboard.accepted]
        await until(lambda: bool(switchboard.outcome(replies[-1])), "it stops")
        assert [switchboard.outcome(one) for one in replies] == ["sent", "sent", "failed"]
        assert switchboard.reasons == ["braked"]
        switchboard.resend(replies[-1])
        await until(lambda: switchboard.outcome(replies[-1]) == "sent", "it is sent as a person wishes")


async def test_replies_to_many_at_once_keep_to_the_limit_of_the_account() -> None:
    platform = ScriptedPlatform(replace(CAPABILITIES, per_account_s=0.05))
    for n in range(10):
        await platform.says(f"t{n}", "hello")
    switchboard, clock = scripted(), asyncio.get_running_loop().time
    async with connector(platform.configured, switchboard):
        await until(lambda: len(switchboard.accepted) == 10, "the messages are accepted")
        began = clock()
        for message in switchboard.accepted:
            switchboard.reply(message, "hi")
        await until(lambda: len(platform.posts) == 10, "all are answered")
        assert clock() - began >= 9 * 0.05


async def test_later_is_obeyed_and_costs_nothing() -> None:
    platform = ScriptedPlatform()
    platform.outcomes = [Later(0.3), Later(0.1)]
    switchboard, outcome = await answer(platform, "hi")
    assert (outcome, [part.text for part in platform.posts]) == ("sent", ["hi"])
    assert sum(request.endswith("/receipt") for request in switchboard.requests) == 1


async def test_a_kill_while_a_part_waits_for_the_platform_leaves_no_doubt() -> None:
    platform, switchboard = ScriptedPlatform(), scripted()
    await platform.says("t", "hello")
    platform.outcomes = [Later(10.0)]
    async with connector(platform.configured, switchboard) as first:
        await until(lambda: bool(switchboard.accepted), "the message is accepted")
        outbox_id = switchboard.reply(switchboard.accepted[0], "hi")
        await until(lambda: not platform.outcomes and not switchboard.parts(outbox_id), "its intent is taken back")
        await first.killed()
    async with connector(platform.configured, switchboard):
        await until(lambda: bool(switchboard.outcome(outbox_id)), "the reply has an outcome")
    assert (switchboard.outcome(outbox_id), [part.text for part in platform.posts]) == ("sent", ["hi"])


async def test_a_part_that_may_have_been_sent_stays_in_doubt_while_it_waits() -> None:
    platform, switchboard = ScriptedPlatform(replace(CAPABILITIES, on_uncertain="resend_marked")), scripted()
    await platform.says("t", "hello")
    platform.outcomes = [Uncertain("silence"), Later(10.0)]
    async with connector(platform.configured, switchboard) as first:
        await until(lambda: bool(switchboard.accepted), "the message is accepted")
        outbox_id = switchboard.reply(switchboard.accepted[0], "hi")
        await until(lambda: not platform.outcomes, "it waits")
        await first.killed()
    async with connector(platform.configured, switchboard):
        await until(lambda: bool(switchboard.outcome(outbox_id)), "the reply has an outcome")
    assert all(REPEAT_NOTE in part.text for part in platform.posts)
    assert switchboard.outcome(outbox_id) == "sent"


@pytest.mark.parametrize(
    ("idempotency", "on_uncertain", "sent", "expected"),
    [
        ("none", "resend_marked", ["hi", f"hi\n\n{REPEAT_NOTE}"], "sent"),
        ("none", "drop", ["hi"], "failed"),
        ("none", "ask", ["hi"], "uncertain"),
        ("lookup", "ask", ["hi"], "sent"),
        ("key", "ask", ["hi"], "sent"),
    ],
)
async def test_a_part_that_was_written_without_an_answer(
    idempotency: Any, on_uncertain: Any, sent: list[str], expected: str
) -> None:
    platform = ScriptedPlatform(
        replace(CAPABILITIES, idempotency=idempotency, key_window_s=60.0),
        Handling(start="all", on_uncertain=on_uncertain),
    )
    platform.outcomes = [OSError("cut")]
    _, outcome = await answer(platform, "hi")
    assert (outcome, [part.text for part in platform.posts]) == (expected, sent)


async def test_a_failed_lookup_at_the_platform_proves_nothing_and_is_repeated() -> None:
    platform = ScriptedPlatform(replace(CAPABILITIES, idempotency="lookup"))
    platform.outcomes, platform.unanswered = [OSError("cut")], 1
    await platform.says("t", "hello")
    switchboard = scripted()
    async with connector(platform.configured, switchboard):
        await until(lambda: bool(switchboard.accepted), "the message is accepted")
        outbox_id = switchboard.reply(switchboard.accepted[0], "hi")
        await until(
            lambda: any("has part 1" in (beat["error_message"] or "") for beat in switchboard.heartbeats), "why"
        )
        assert (switchboard.outcome(outbox_id), switchboard.parts(outbox_id)[0]["state"]) == ("", "intent")
        switchboard.leases_end()
        await until(lambda: switchboard.outcome(outbox_id) == "sent", "it is asked again, and has it")
        await until(lambda: switchboard.heartbeats[-1]["state"] == "healthy", "the trouble is over")
    assert ([part.text for part in platform.posts], platform.finds) == (["hi"], 2)


@pytest.mark.parametrize(("age_s", "finds", "outcome"), [(5.0, 0, "sent"), (100.0, 1, "uncertain")])
async def test_a_part_in_doubt_is_resent_under_its_key_while_that_is_remembered(
    age_s: float, finds: int, outcome: str
) -> None:
    capabilities = replace(CAPABILITIES, idempotency="key", key_window_s=60.0, on_uncertain="ask")
    platform = ScriptedPlatform(capabilities)
    await platform.says("t", "hello")
    switchboard = scripted()
    async with connector(platform.configured, switchboard) as running:
        await until(lambda: bool(switchboard.accepted), "the message is accepted")
        await running.killed()
    outbox_id = switchboard.reply(switchboard.accepted[0], "hi")
    switchboard.parts(outbox_id)[0] = {"part": 0, "state": "uncertain", "age_s": age_s}
    async with connector(platform.configured, switchboard):
        await until(lambda: bool(switchboard.outcome(outbox_id)), "the reply has an outcome")
    assert (platform.finds, switchboard.outcome(outbox_id)) == (finds, outcome)


async def test_a_platform_may_have_no_ids() -> None:
    platform = ScriptedPlatform()
    platform.outcomes = [Sent("")]
    _, outcome = await answer(platform, "hi")
    assert outcome == "sent"


async def test_a_reply_of_nothing_has_failed() -> None:
    _, outcome = await answer(ScriptedPlatform(), " ")
    assert outcome == "failed"


async def test_that_replies_cannot_be_fetched_is_said_until_they_are() -> None:
    platform, switchboard = ScriptedPlatform(), scripted()
    switchboard.closed.add("/v1/outbox/next")
    async with connector(platform.configured, switchboard):
        await until(lambda: switchboard.requests.count("POST /v1/outbox/next") > 2, "it tries again")
        await until(
            lambda: any("unavailable" in (beat["error_message"] or "") for beat in switchboard.heartbeats), "it says so"
        )
        switchboard.closed.clear()
        await until(lambda: switchboard.heartbeats[-1]["state"] == "healthy", "it is well again")


async def test_a_part_is_repeated_at_most_once() -> None:
    platform = ScriptedPlatform()
    platform.outcomes = [Uncertain("no answer"), Uncertain("no answer")]
    _, outcome = await answer(platform, "hi")
    assert (outcome, platform.posts) == ("uncertain", [])


async def test_own_messages_and_those_of_bots_are_left_out_and_move_the_cursor() -> None:
    platform = ScriptedPlatform()
    platform.add("t", "own", own=True)
    platform.add("t", "bot", by_bot=True)
    switchboard = scripted()
    async with connector(platform.configured, switchboard):
        await until(lambda: platform.confirmed == 2, "the cursor is behind both")
    assert (switchboard.accepted, switchboard.cursor) == ([], "2")


async def test_an_album_is_one_message() -> None:
    platform = ScriptedPlatform()
    for _ in range(3):
        platform.add("t", "look", album="a")
    switchboard = scripted()
    async with connector(platform.configured, switchboard):
        await until(lambda: platform.confirmed == 3, "all three are settled")
    [message] = switchboard.accepted
    assert (message["event"]["also"], len(message["payload"]["attachments"])) == (["2", "3"], 3)


async def test_an_album_whose_first_part_was_stored_alone_loses_no_others() -> None:
    platform, switchboard = ScriptedPlatform(), scripted()
    platform.add("t", "look", album="a")
    async with connector(platform.configured, switchboard):
        await until(lambda: platform.confirmed == 1, "the first is settled")
    switchboard.cursor = None
    for _ in range(2):
        platform.add("t", "look", album="a")
    async with connector(platform.configured, switchboard):
        await until(lambda: platform.confirmed == 3, "all three are settled")
    ids = [(message["event"]["external_event_id"], message["event"].get("also")) for message in switchboard.accepted]
    assert ids == [("1", None), ("2", ["3"])]


async def test_an_event_that_fails_for_ever_is_quarantined_while_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "_PAUSE_S", 0.001)
    monkeypatch.setattr(receiving, "_FAILING_S", 0.1)
    platform, switchboard = ScriptedPlatform(), scripted()
    switchboard.refusal = lambda envelope: "internal_error" if "3" in envelope["payload"]["normalized_text"] else None
    for number in range(1, 6):
        await platform.says(f"t{number}", f"number {number}")
    for _ in range(2):
        async with connector(platform.configured, switchboard):
            await until(lambda: len(switchboard.accepted) >= 4, "the others are accepted")
            await platform.says("t9", "later")
            await until(lambda: switchboard.cursor == str(len(platform.events)), "all are settled")
    assert list(switchboard.quarantined) == ["3"]
    assert texts(switchboard.accepted) == [*(f"number {number}" for number in (1, 2, 4, 5)), "later", "later"]


async def test_a_batch_at_which_the_switchboard_breaks_is_submitted_one_by_one() -> None:
    platform, switchboard = ScriptedPlatform(), scripted()
    switchboard.breaks_at = "poison"
    for thread, text in (("a", "poison"), ("b", "fine"), ("c", "good")):
        await platform.says(thread, text)
    async with connector(platform.configured, switchboard):
        await until(lambda: len(switchboard.accepted) == 2, "the others are accepted")
    assert (texts(switchboard.accepted), switchboard.cursor) == (["fine", "good"], None)


@pytest.mark.parametrize("event_id", ["", "x" * 513, "a\0b", "\ud800"])
async def test_an_event_with_an_impossible_id_is_quarantined_under_its_hash(event_id: str) -> None:
    platform, switchboard = ScriptedPlatform(), scripted()
    platform.break_one(event_id)
    async with connector(platform.configured, switchboard):
        await until(lambda: platform.confirmed == 1, "it is settled")
    [kept] = switchboard.quarantined
    assert kept.startswith("sha256:")


async def test_what_nobody_can_read_is_quarantined() -> None:
    platform = ScriptedPlatform()
    platform.break_one("e1")
    await platform.says("t", "hello")
    switchboard = scripted()
    async with connector(platform.configured, switchboard):
        await until(lambda: platform.confirmed == 2, "both are settled")
    assert (switchboard.quarantined, texts(switchboard.accepted)) == ({"e1": "no event"}, ["hello"])


async def test_a_replay_is_submitted_and_removed_or_waits_with_its_new_reason() -> None:
    platform, switchboard = ScriptedPlatform(), scripted()
    platform.break_one("broken")
    sent_at = datetime.now(UTC) - timedelta(days=30)
    platform.add("t", "refused", event={"sent_at": sent_at})
    switchboard.refusal = lambda _: "invalid_value"
    async with connector(platform.configured, switchboard):
        await until(lambda: switchboard.cursor == "2", "both are settled")
    assert switchboard.quarantined == {"broken": "no event", "2": "invalid_value: scripted: invalid_value"}
    switchboard.refusal = lambda _: None
    switchboard.replays, switchboard.moved = ["broken", "2"], {"t": "home"}
    async with connector(platform.configured, switchboard):
        await until(lambda: not switchboard.replays, "both are replayed")
    assert switchboard.quarantined == {"broken": "still no event"}
    [message] = switchboard.accepted
    assert (message["event"]["external_event_id"], message["control"]["ingestion_tier"]) == ("2", "full")
    assert message["event"]["external_thread_id"] == "home", "its conversation has moved meanwhile"


async def test_a_replay_at_which_the_switchboard_breaks_holds_back_no_other() -> None:
    platform, switchboard = ScriptedPlatform(), scripted()
    for text in ("poison", "fine"):
        await platform.says(text, text)
    switchboard.refusal = lambda _: "invalid_value"
    async with connector(platform.configured, switchboard):
        await until(lambda: len(switchboard.quarantined) == 2, "both are in quarantine")
    switchboard.refusal = lambda one: "internal_error" if texts([one]) == ["poison"] else None
    switchboard.replays = ["1", "2"]
    async with connector(platform.configured, switchboard):
        await until(lambda: list(switchboard.quarantined) == ["1"], "the other one is replayed")
        assert texts(switchboard.accepted) == ["fine"]
        switchboard.refusal = lambda _: None
        await until(lambda: not switchboard.quarantined, "then the first one is")
    assert texts(switchboard.accepted) == ["fine", "poison"]


async def test_at_the_first_start_what_is_there_is_left_alone() -> None:
    platform = ScriptedPlatform(handling=Handling())
    await platform.says("t", "long ago")
    switchboard = scripted()
    async with connector(platform.configured, switchboard):
        await until(lambda: switchboard.cursor == "1", "the first cursor is kept")
        await platform.says("t", "now")
        await until(lambda: bool(switchboard.accepted), "a message is accepted")
    assert texts(switchboard.accepted) == ["now"]


async def test_a_conversation_that_moves_stays_one_and_a_restart_changes_nothing() -> None:
    platform, switchboard = ScriptedPlatform(), scripted()
    await platform.says("old", "before")
    platform.add("old", "moved", event={"kind": "membership"}, moved=("old", "new"))
    platform.add("new", "moved", event={"kind": "membership"}, moved=("old", "new"))
    await platform.says("new", "behind")
    async with connector(platform.configured, switchboard):
        await until(lambda: len(switchboard.accepted) == 4, "all are accepted")
    await platform.says("new", "later")
    async with connector(platform.configured, switchboard):
        await until(lambda: len(switchboard.accepted) == 5, "the last one is accepted")
    assert switchboard.moved == {"new": "old"}
    assert texts(switchboard.accepted) == ["before", "moved", "moved", "behind", "later"]
    events = [message["event"] for message in switchboard.accepted]
    assert {event["external_thread_id"] for event in events} == {"old"}
    assert [event["reply_address"]["thread"] for event in events] == ["old", "old", "new", "new", "new"]


async def test_a_message_that_fails_holds_back_its_own_conversation_only() -> None:
    platform, switchboard = ScriptedPlatform(), scripted()
    switchboard.refusal = lambda envelope: (
        "internal_error" if envelope["payload"]["normalized_text"] == "fails" else None
    )
    for thread, text in (("a", "fails"), ("b", "goes"), ("a", "waits")):
        await platform.says(thread, text)
    async with connector(platform.configured, switchboard):
        await until(lambda: switchboard.requests.count("POST /v1/ingest/batch") > 2, "it is tried again")
        assert texts(switchboard.accepted) == ["goes"]
        assert switchboard.cursor is None
        switchboard.refusal = lambda _: None
        await until(lambda: switchboard.cursor == "3", "all is settled")
    assert texts(switchboard.accepted) == ["goes", "fails", "waits"]


async def test_a_silent_connection_is_rebuilt_and_then_the_process_ends() -> None:
    platform = ScriptedPlatform(replace(CAPABILITIES, receive_window_s=0.2))
    platform.silent = True
    switchboard = scripted()
    async with connector(platform.configured, switchboard) as running:
        await until(running.task.done, "the process ends")
        assert running.task.result() == 75
    assert platform.opened == 2


async def test_heartbeats_tell_the_state_and_what_was_counted() -> None:
    platform = ScriptedPlatform()
    await platform.says("t", "hello")
    switchboard = scripted()
    async with connector(platform.configured, switchboard):
        await until(lambda: any(beat["state"] == "healthy" for beat in switchboard.heartbeats), "it is healthy")
    assert switchboard.heartbeats[-1]["counters"].get("accepted") == 1


async def test_told_to_stop_the_account_is_free_at_once() -> None:
    platform, switchboard = ScriptedPlatform(), scripted()
    async with connector(platform.configured, switchboard) as running:
        await until(lambda: "POST /v1/outbox/next" in switchboard.requests, "the account is open")
        running.stop.set()
        await until(running.task.done, "it ends")
        assert running.task.result() == 0
    assert switchboard.requests[-2:] == ["DELETE /v1/connectors/lease", "POST /v1/connectors/heartbeat"]


async def test_an_sdk_that_tries_to_exit_ends_its_account_with_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SystemExit of a task would end the loop, with the server and all other accounts in it."""

    def leave(*_: object) -> None:
        raise SystemExit(3)

    monkeypatch.setattr("switchboard.testing.connectors.platform.ScriptedSession.receive", leave)
    with pytest.raises(RuntimeError, match="wanted to end the process"):
        async with connector(ScriptedPlatform().configured, scripted()) as running:
            await running.task


async def test_what_a_platform_says_at_sign_in_replaces_what_the_manifest_says() -> None:
    """For texts and files that are sent, for files that are fetched, and for how long a silence may be."""
    learned = replace(CAPABILITIES, text_limit=50, max_file_in=10, max_file_out=10, receive_window_s=77.0)
    platform, switchboard = ScriptedPlatform(learned=learned), scripted()
    await platform.brings("t", "hello", b"x" * 11)
    outcome = await outcome_of_one(platform, switchboard, "word " * 15, ("a.txt", b"x" * 11))
    [attachment] = switchboard.accepted[0]["payload"]["attachments"]
    assert "at most 10 are taken" in attachment["unavailable"]
    assert (outcome, [len(part.text) <= 50 for part in platform.posts]) == ("sent", [True] * 3)
    assert [part.files for part in platform.posts] == [()] * 3


@pytest.mark.parametrize(("status", "outcome"), [(503, "failed"), (404, "sent")], ids=["is away", "is of before"])
async def test_a_late_failure_waits_for_the_server_unless_it_knows_none(status: int, outcome: str) -> None:
    """One that does not know such reports must not stop the account."""
    platform, switchboard = ScriptedPlatform(), scripted()
    await platform.says("t", "hello")
    async with connector(platform.configured, switchboard):
        await until(lambda: bool(switchboard.accepted), "the message is accepted")
        outbox_id = switchboard.reply(switchboard.accepted[0], "hi")
        await until(lambda: switchboard.outcome(outbox_id) == "sent", "the reply is sent")
        switchboard.closed, switchboard.outage = {"/v1/outbox/late"}, status
        await platform.fails_later()
        await until(lambda: "POST /v1/outbox/late" in switchboard.requests, "it is reported")
        switchboard.closed = set()
        await platform.says("t", "are you there?")
        await until(lambda: switchboard.cursor == "2", "the next message is settled, too")
        await until(lambda: switchboard.outcome(outbox_id) == outcome, "the reply is as the server knows")
