"""Doctor: what is wrong with the installation, and how to mend it. Next: `app/ops/doctor.py`."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.responses import Response

from switchboard.app.ops.doctor import check_machine, look_at_database
from switchboard.app.status import STATUS
from switchboard.server.web.page import WebPage
from switchboard.server.web.visit import Visit

_RANKS: Final = {"error": 0, "warning": 1, "ok": 2}


async def show_doctor(visit: Visit) -> Response:
    """What is wrong first. Checks of the machine are those of this server's process."""
    runtime = visit.services.runtime
    machine, database = await asyncio.gather(
        asyncio.to_thread(check_machine, runtime.settings), look_at_database(runtime.database, runtime.settings)
    )
    found = sorted([*machine, *database], key=lambda one: _RANKS[one.status])
    return visit.page("doctor.html", findings=found, wrong=[one for one in found if one.status != "ok"])


PAGES: Final = (WebPage("/doctor", show_doctor, STATUS, "Doctor"),)
