"""An account as a task in the server's process, with `connectors = "inside"`.

`serving.py` calls it instead of starting a process. In: settings, the file of the account, and where the server is,
which is asked over HTTP with the token of the account, as by a process. Next: `account.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import structlog

from switchboard.app.ownership import read_ours
from switchboard.app.settings import Settings
from switchboard.app.supervisor import keep_running
from switchboard.app.whereabouts import OPERATOR_FILE
from switchboard.cli.channels.account import connect_account
from switchboard.cli.channels.watching import is_there
from switchboard.cli.client import ServerPlace, require_here
from switchboard.connectors.kernel.accounts import read_account
from switchboard.domain.errors import SwitchboardError
from switchboard.tasks import refuse_exit

log = structlog.get_logger(__name__)


async def serve_inside(settings: Settings, file: Path, url: str, stop: asyncio.Event) -> None:
    """Serve the account of this file until `stop`; whatever it ends with, it begins again after a growing pause."""

    async def serve() -> int:
        account = read_account(file, read_ours, settings.public_url)
        token_file = settings.data_dir / OPERATOR_FILE
        require_here(url, token_file)
        place = ServerPlace(url, read_ours(token_file).strip(), "")
        return await refuse_exit(connect_account, settings, account, stop, place)

    async def run() -> Mapping[str, object]:
        [ended] = await asyncio.gather(serve(), return_exceptions=True)  # its cancellation, too, is not ours
        if isinstance(ended, Exception) and not isinstance(ended, SwitchboardError):
            log.error("account failed", account=file.stem, exc_info=ended)
        why = {"code": ended} if isinstance(ended, int) else {"why": str(ended) or repr(ended)}
        return {"name": file.stem, **why}

    await keep_running(run, lambda: is_there(file), stop)
