"""All pages and forms, in the order of the menu. A module of pages adds its `PAGES` here, and nothing elsewhere."""

from __future__ import annotations

from typing import Final

from switchboard.server.web.page import WebForm, WebPage
from switchboard.server.web.pages import (
    approvals,
    audit,
    butlers,
    chat,
    connecting,
    connections,
    consenting,
    conversations,
    dead_letters,
    doctor,
    memory,
    message_actions,
    messages,
    models,
    now,
    plans,
    rules,
    session,
    sessions,
    strangers,
    tasks,
    waiting,
    welcome,
)

PAGES: Final[tuple[WebPage | WebForm, ...]] = (
    *now.PAGES,
    *chat.PAGES,
    *approvals.PAGES,
    *strangers.PAGES,
    *dead_letters.PAGES,
    *messages.PAGES,
    *message_actions.PAGES,
    *conversations.PAGES,
    *tasks.PAGES,
    *plans.PAGES,
    *butlers.PAGES,
    *rules.PAGES,
    *memory.PAGES,
    *models.PAGES,
    *connections.PAGES,
    *connecting.PAGES,
    *consenting.PAGES,
    *doctor.PAGES,
    *audit.PAGES,
    *sessions.PAGES,
    *welcome.PAGES,
    *session.PAGES,
    *waiting.PAGES,
)
