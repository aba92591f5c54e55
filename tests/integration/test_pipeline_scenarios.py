"""The scenarios of the pipeline's two documents, each with the tests that hold it; by name, in their order.

The first document is the stage behind the rules ("LLM-based message classification and routing for the Switchboard
butler"), the second the class `MessagePipeline`. What a scenario asks of another part stands here with a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from switchboard.app.messages.intake import INGEST
from tests.integration import test_classifier as classifier
from tests.integration import test_engine_memo as memo
from tests.integration import test_injection as injection
from tests.integration import test_isolation as isolation
from tests.integration.pipeline import test_class as class_
from tests.integration.pipeline import test_dedupe as dedupe
from tests.integration.pipeline import test_history as history
from tests.integration.pipeline import test_sessions as sessions
from tests.integration.pipeline import test_stage as stage
from tests.lab import envelope_json
from tests.servers import AGENT, open_server

Held = tuple[Callable[..., Any], ...]
NO_MODULES: Final = (
    "Butlers are programs of their own, with whatever tools they bring: there is no module that could ingest anything."
)


async def test_butlers_do_not_ingest(database_url: str, tmp_path: Path) -> None:
    async with open_server(database_url, tmp_path / "data") as server:
        header = dict(await server.token_for(AGENT))
        answer = await server.submit(envelope_json("from a module"), **header)
        assert answer.status_code == 403
    assert INGEST.roles == {"operator", "connector"}


STAGE: Final[Mapping[str, Held | str]] = {
    "End-to-end ingestion flow": (
        classifier.test_from_a_connector_over_mcp_to_the_butler,
        classifier.test_what_a_rule_decides_is_shown_to_no_model,
        classifier.test_a_message_that_no_rule_decides_goes_where_the_model_says,
    ),
    "Connectors own ingestion": (test_butlers_do_not_ingest,),
    "Switchboard owns request context and deduplication": (
        classifier.test_from_a_connector_over_mcp_to_the_butler,
        stage.test_a_message_with_a_request_context_is_taken_as_it_is,
    ),
    "Calendar module as runtime lookup": NO_MODULES,
    "Contacts module as runtime lookup": NO_MODULES,
    "Email module as runtime lookup": NO_MODULES,
    "Memory module as runtime lookup": (memo.test_the_nearest_earlier_memos_come_first_and_are_three,),
    "Pipeline receives pre-processed messages": (stage.test_a_message_with_a_request_context_is_taken_as_it_is,),
    "Routing prompt construction": (stage.test_the_prompt_holds_all_that_it_should,),
    "Route tool call parsing": (stage.test_what_a_session_says_is_parsed,),
    "Routing result": (
        stage.test_errors_of_classification_and_of_routing_have_separate_fields,
        class_.test_partial_success_is_told_as_it_is,
    ),
    "Realtime messaging history": (
        history.test_of_a_chat_fifteen_minutes_are_shown_both_sides,
        history.test_of_a_chat_thirty_messages_are_shown_the_newest,
        history.test_of_other_conversations_nothing_is_shown,
    ),
    "Email thread history": (history.test_of_mail_the_whole_chain_is_shown_up_to_50_000_tokens,),
    "No history for API/MCP channels": (history.test_of_an_api_nothing_is_shown,),
    "Context isolation": (isolation.test_five_hundred_interleaved_messages_see_only_themselves,),
    "Legacy set_pipeline() method": (class_.test_the_old_wiring_is_accepted_and_warned_of,),
}

CLASS: Final[Mapping[str, Held | str]] = {
    "Pipeline construction": (
        class_.test_an_embedder_needs_a_pool_and_a_dispatch_function,
        class_.test_a_function_may_classify_in_place_of_a_model,
    ),
    "Successful message processing": (class_.test_an_embedder_needs_a_pool_and_a_dispatch_function,),
    "Routing result fields": (class_.test_the_result_has_the_fields_of_the_document,),
    "User identity inference": (class_.test_the_identity_is_that_of_the_tool_name,),
    "Bot identity inference": (class_.test_the_identity_is_that_of_the_tool_name,),
    "Unknown identity": (class_.test_the_identity_is_that_of_the_tool_name,),
    "Source metadata fields from tool_args": (class_.test_an_embedder_needs_a_pool_and_a_dispatch_function,),
    "Routing prompt structure": (stage.test_the_prompt_holds_all_that_it_should,),
    "Prompt injection defense": (
        stage.test_the_prompt_holds_all_that_it_should,
        injection.test_an_api_that_obeys_the_attacker_reaches_nobody_else,
        injection.test_a_session_that_obeys_the_attacker_finds_no_other_tool,
    ),
    "Extract routed butlers": (stage.test_what_a_session_says_is_parsed,),
    "Fallback target inference": (stage.test_what_a_session_says_is_parsed,),
    "Realtime messaging history strategy": (
        history.test_of_a_chat_fifteen_minutes_are_shown_both_sides,
        history.test_of_a_chat_thirty_messages_are_shown_the_newest,
    ),
    "Email history strategy": (history.test_of_mail_the_whole_chain_is_shown_up_to_50_000_tokens,),
    "No history channels": (history.test_of_an_api_nothing_is_shown,),
    "Concurrent session isolation": (isolation.test_five_hundred_interleaved_messages_see_only_themselves,),
    "Context cleanup": (
        sessions.test_the_context_is_there_within_and_gone_after,
        isolation.test_a_cancelled_message_leaves_no_context_and_no_open_session,
        isolation.test_clearing_is_what_ends_a_context,
    ),
    "Dedupe enabled": (
        dedupe.test_a_key_counts_once_where_dedupe_is_enabled,
        dedupe.test_a_message_that_came_to_nothing_may_come_again,
        dedupe.test_a_key_whose_process_died_is_taken_over,
    ),
    "Request ID generation": (class_.test_ids_are_uuid7_of_the_present_time,),
}


def test_every_scenario_is_held_by_tests_that_are_run() -> None:
    """What is named here exists, or this would not be imported; and it bears a name by which it is collected."""
    named = {**STAGE, **CLASS}
    assert (len(STAGE), len(CLASS), len(named)) == (16, 18, 34)
    tests = {scenario: held for scenario, held in named.items() if not isinstance(held, str)}
    assert [scenario for scenario, held in tests.items() if not held] == []
    assert {one.__name__ for held in tests.values() for one in held if not one.__name__.startswith("test_")} == set()
