"""All laws, and which of them can be checked with a driver. Next: `arriving.py`, `files.py`, `leaving.py`,
`pushing.py`, `sent_files.py`, `serving.py`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

from switchboard.testing.connectors import arriving, files, leaving, pushing, sent_files, serving

ConnectorCheck = Callable[[Any], Coroutine[Any, Any, None]]
"""A law; it takes a `Driver`, or the kind of driver that its signature names."""

CHECKS: Final[tuple[ConnectorCheck, ...]] = (
    arriving.check_order_is_kept_within_each_conversation,
    arriving.check_what_is_given_again_is_no_second_message,
    arriving.check_a_kill_while_receiving_loses_and_doubles_nothing,
    arriving.check_what_is_refused_is_quarantined_and_the_rest_goes_on,
    arriving.check_one_that_always_fails_holds_back_nobody_else,
    arriving.check_odd_texts_arrive_as_they_were_written,
    arriving.check_more_than_a_message_can_hold_disturbs_nobody,
    arriving.check_a_message_of_nothing_disturbs_nobody,
    leaving.check_a_kill_in_a_reply_of_five_parts_repeats_none_unmarked,
    leaving.check_odd_texts_leave_as_they_were_written,
    leaving.check_a_text_of_nothing_disturbs_nobody,
    serving.check_an_outage_of_the_switchboard_loses_nothing,
    serving.check_a_second_process_stands_by_and_takes_over,
    serving.check_secrets_are_told_to_nobody,
)
"""Laws for every channel."""

MORE_CHECKS: Final[tuple[tuple[ConnectorCheck, tuple[str, ...]], ...]] = (
    (arriving.check_a_platform_that_starts_over_brings_no_second_message, ("starts_over",)),
    (arriving.check_what_we_or_programs_say_is_answered_by_nobody, ("own_says", "bot_says")),
    (arriving.check_an_edit_is_no_second_message, ("edits",)),
    (arriving.check_a_deletion_is_no_second_message, ("deletes",)),
    (arriving.check_a_text_that_was_split_is_one_message, ("splits",)),
    (arriving.check_a_kill_while_pieces_of_a_text_arrive_loses_and_doubles_nothing, ("splits",)),
    (files.check_a_file_is_fetched_once_and_arrives_as_it_was, ("brings",)),
    (files.check_a_kill_while_a_file_is_fetched_loses_and_doubles_nothing, ("brings",)),
    (files.check_a_file_for_which_there_is_no_room_keeps_no_message_back, ("brings",)),
    (files.check_a_file_that_cannot_be_had_keeps_no_message_back, ("brings", "loses_files")),
    (leaving.check_a_press_brings_back_what_its_button_stands_for, ("buttons", "presses")),
    (leaving.check_a_place_is_approved_once_and_each_thread_gets_its_answers, ("calls",)),
    (sent_files.check_a_kill_in_a_reply_with_files_loses_and_doubles_none, ("received",)),
    *((law, ("acknowledged", "pushes_again", "drops_socket")) for law in pushing.LAWS),
    (pushing.check_a_deaf_socket_is_replaced, ("goes_deaf",)),
    (pushing.check_a_gap_loses_and_doubles_nothing, ("cuts", "window_s")),
    (pushing.check_no_more_sign_ins_than_the_platform_allows, ("leaves_sign_ins", "overdrawn", "drops_socket")),
    (sent_files.check_a_file_without_a_caption_comes_after_its_text, ("received", "captionless")),
    (leaving.check_a_failure_after_sending_is_told_once, ("fails_later",)),
    (leaving.check_a_failure_before_our_receipt_counts, ("fails_later",)),
    (leaving.check_a_part_keeps_a_key_of_its_own, ("puts_off", "given_keys")),
    (leaving.check_patience_is_shown_and_costs_nothing, ("puts_off",)),
    (leaving.check_a_limit_of_the_account_pauses_all_of_it, ("limits_account", "hasty")),
    (serving.check_an_outage_of_the_platform_loses_nothing, ("away",)),
    (serving.check_an_idle_account_asks_for_nothing, ("asked",)),
)
"""Laws for channels whose driver has the methods that they need."""


def checks_for(driver: type) -> tuple[ConnectorCheck, ...]:
    """Every law that can be checked with a driver of this class."""
    return (*CHECKS, *(check for check, needed in MORE_CHECKS if all(hasattr(driver, name) for name in needed)))
