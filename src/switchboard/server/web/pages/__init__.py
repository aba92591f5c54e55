"""All pages and forms, in the order of the menu. A module of pages adds its `PAGES` here, and nothing elsewhere."""

from __future__ import annotations

from typing import Final

from switchboard.server.web.page import WebForm, WebPage
from switchboard.server.web.pages import audit, session

PAGES: Final[tuple[WebPage | WebForm, ...]] = (*audit.PAGES, *session.PAGES)
