"""Every form of the page has a command and a route for the same, and every route that forms need is there."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import pytest

from switchboard.domain.errors import InvalidInput
from switchboard.server.web.page import WebForm
from switchboard.server.web.pages import PAGES
from switchboard.server.web.pages.welcome import answers_from
from tests.surface import DIRECTORY

OF_THE_BROWSER: Final = {"/leave", "/theme"}
"""What only a browser has: a cookie."""


class Same(NamedTuple):
    """What does the same as a form."""

    operation: str
    command: str


SAME: Final = {
    "/chat/send": Same("POST /v1/ingest", "send"),
    "/chat/{request_id:uuid}/stop": Same("POST /v1/messages/{request_id}/stop", "messages stop"),
    "/chat/approvals/{approval_id:uuid}/approve": Same("POST /v1/approvals/{approval_id}/approve", "approvals approve"),
    "/chat/approvals/{approval_id:uuid}/refuse": Same("POST /v1/approvals/{approval_id}/refuse", "approvals refuse"),
    "/chat/approvals/{approval_id:uuid}/answer": Same("POST /v1/approvals/{approval_id}/answer", "approvals answer"),
    "/butlers/quarantine": Same("POST /v1/agents/quarantine", "agents quarantine"),
    "/butlers/release": Same("POST /v1/agents/release", "agents release"),
    "/butlers/modules/sync": Same("POST /v1/modules/{module}/sync", "modules sync"),
    "/butlers/modules/release": Same("POST /v1/modules/{module}/release", "modules release"),
    "/memory/facts": Same("GET /v1/memory/facts", "memory list"),
    "/memory/add": Same("POST /v1/memory/facts", "memory add"),
    "/memory/facts/{fact_id:uuid}": Same("GET /v1/memory/facts/{fact_id}", "memory show"),
    "/memory/facts/{fact_id:uuid}/share": Same("POST /v1/memory/facts/{fact_id}/share", "memory share"),
    "/memory/facts/{fact_id:uuid}/undo": Same("POST /v1/memory/facts/{fact_id}/undo", "memory undo"),
    "/memory/facts/{fact_id:uuid}/forget": Same("POST /v1/memory/facts/{fact_id}/forget", "memory forget"),
    "/memory/entities": Same("GET /v1/memory/entities", "memory entities"),
    "/memory/runs": Same("GET /v1/memory/runs", "memory runs"),
    "/memory/runs/{run:uuid}/undo": Same("POST /v1/memory/runs/{run}/undo", "memory undo-run"),
    "/memory/summaries": Same("GET /v1/memory/summaries", "memory list"),
    "/memory/summaries/{summary_id:uuid}/restore": Same(
        "POST /v1/memory/summaries/{summary_id}/restore", "memory restore"
    ),
    "/tasks/{task_id:uuid}/cancel": Same("POST /v1/tasks/{task_id}/cancel", "tasks cancel"),
    "/tasks/{task_id:uuid}/pause": Same("POST /v1/tasks/{task_id}/pause", "tasks pause"),
    "/tasks/{task_id:uuid}/resume": Same("POST /v1/tasks/{task_id}/resume", "tasks resume"),
    "/tasks/{task_id:uuid}/run": Same("POST /v1/tasks/{task_id}/run", "tasks run"),
    "/welcome/look": Same("POST /v1/setup/models", "init"),
    "/welcome/model": Same("POST /v1/setup/files", "init"),
    "/welcome/card": Same("POST /v1/setup/cards", "setup skip"),
    "/rules/new": Same("POST /v1/rules", "rules create"),
    "/rules/{rule_id:uuid}/change": Same("PATCH /v1/rules/{rule_id}", "rules update"),
    "/rules/{rule_id:uuid}/delete": Same("DELETE /v1/rules/{rule_id}", "rules delete"),
    "/rules/versions/{version:int}/restore": Same("POST /v1/rules/restore", "rules restore"),
    "/sessions/{session_id:uuid}/end": Same("DELETE /v1/web/sessions/{session_id}", "web-sessions end"),
    "/sessions/end-all": Same("DELETE /v1/web/sessions", "web-sessions end-all"),
    "/connections/add/{channel}": Same("POST /v1/channels", "channels add"),
    "/connections/consent/{channel}": Same("POST /v1/channels/consents", "channels add"),
    "/connections/consents/{consent_id:uuid}/finish": Same(
        "POST /v1/channels/consents/{consent_id}/finish", "channels add"
    ),
    "/connections/accounts/{name}/sign-in": Same("POST /v1/channels/{name}/login", "channels login"),
    "/connections/accounts/{name}/test": Same("POST /v1/channels/{name}/test", "channels test"),
    "/connections/accounts/{name}/pause": Same("POST /v1/channels/{name}/pause", "channels pause"),
    "/connections/accounts/{name}/resume": Same("POST /v1/channels/{name}/resume", "channels resume"),
    "/connections/accounts/{name}/remove": Same("DELETE /v1/channels/{name}", "channels remove"),
    "/connections/accounts/{name}/code": Same("POST /v1/pairing/codes", "pairing code"),
    "/connections/accounts/{name}/allow": Same("POST /v1/pairing", "pairing allow"),
    "/strangers/{contact_id:uuid}/approve": Same("POST /v1/pairing/{contact_id}/approve", "pairing approve"),
    "/strangers/{contact_id:uuid}/deny": Same("POST /v1/pairing/{contact_id}/deny", "pairing deny"),
    "/strangers/{contact_id:uuid}/revoke": Same("POST /v1/pairing/{contact_id}/revoke", "pairing revoke"),
    "/approvals/{approval_id:uuid}/approve": Same("POST /v1/approvals/{approval_id}/approve", "approvals approve"),
    "/approvals/{approval_id:uuid}/refuse": Same("POST /v1/approvals/{approval_id}/refuse", "approvals refuse"),
    "/approvals/{approval_id:uuid}/answer": Same("POST /v1/approvals/{approval_id}/answer", "approvals answer"),
    "/messages/{request_id:uuid}/reroute": Same("POST /v1/messages/{request_id}/reroute", "messages reroute"),
    "/messages/{request_id:uuid}/correct": Same("POST /v1/messages/{request_id}/correction", "messages correct"),
    "/messages/{request_id:uuid}/try": Same("POST /v1/messages/{request_id}/try", "messages try"),
    "/messages/{request_id:uuid}/stop": Same("POST /v1/messages/{request_id}/stop", "messages stop"),
    "/messages/{request_id:uuid}/replies/{outbox_id:uuid}/resend": Same(
        "POST /v1/outbox/{outbox_id}/resend", "outbox resend"
    ),
    "/dead-letters/many": Same("POST /v1/dead-letters/bulk", "dlq reroute"),
    "/dead-letters/{dead_letter_id:uuid}/reroute": Same(
        "POST /v1/dead-letters/{dead_letter_id}/reroute", "dlq reroute"
    ),
    "/dead-letters/{dead_letter_id:uuid}/handle": Same("POST /v1/dead-letters/{dead_letter_id}/handle", "dlq handle"),
}


def test_every_form_has_its_command_and_its_route() -> None:
    assert {page.path for page in PAGES if isinstance(page, WebForm)} - OF_THE_BROWSER == set(SAME)


@pytest.mark.parametrize("same", sorted(set(SAME.values())), ids=lambda same: same.command)
def test_the_command_and_the_route_of_a_form_exist(same: Same) -> None:
    operations = (DIRECTORY / "openapi.txt").read_text(encoding="utf-8")
    commands = (DIRECTORY / "help.txt").read_text(encoding="utf-8")
    assert re.search(rf"^{re.escape(same.operation)} ", operations, re.MULTILINE)
    assert re.search(rf"switchboard {same.command}\b", commands)


def test_an_address_that_is_not_chosen_is_not_passed_over() -> None:
    with pytest.raises(InvalidInput, match="choose Another server"):
        answers_from({"choice": "none", "url": "http://127.0.0.1:8000/v1"})
