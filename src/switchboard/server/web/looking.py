"""The services of those who only look. What they may not see is refused like anywhere, but not put into the audit.

A page is loaded again and again, by people and by itself, and loading one writes nothing. Pages of messages call these
instead of those of `Services`. Next: `app/messages/views.py`.
"""

from __future__ import annotations

from typing import Final

import structlog

from switchboard.app.access import Access, Action, Principal
from switchboard.app.messages.blobs import BlobService
from switchboard.app.messages.contents import MessageContents
from switchboard.app.messages.searching import MessageSearch
from switchboard.app.messages.views import Views
from switchboard.domain.json_values import JsonMapping
from switchboard.server.services import ServiceFactory

log = structlog.get_logger(__name__)


class LookingAccess(Access):
    """Refusals are logged only."""

    async def record_refusal(self, principal: Principal, action: Action, detail: JsonMapping) -> None:
        """Write nothing to the audit trail."""
        log.warning("refused to show", actor=principal.name, action=action.name, **detail)


_ACCESS: Final = ServiceFactory(lambda services: LookingAccess(services.runtime.database))
MESSAGE_SEARCH: Final = ServiceFactory(lambda services: MessageSearch(services.runtime, services.of(_ACCESS)))
LOOKING_VIEWS: Final = ServiceFactory(lambda services: Views(services.runtime, services.of(_ACCESS)))
LOOKING_BLOBS: Final = ServiceFactory(
    lambda services: BlobService(services.runtime.database, services.of(_ACCESS), services.runtime.settings)
)
CONTENTS: Final = ServiceFactory(
    lambda services: MessageContents(services.of(LOOKING_VIEWS), services.of(LOOKING_BLOBS))
)
