"""`switchboard connect`: serves one account of a channel in a process of its own. Called by `cli/main.py`.

In: the account's file; out: only logs. With access to the operator's token, it creates a token valid for this account
alone, and keeps it in the data directory. Next: `cli/channels/account.py`.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import Annotated

import typer

from switchboard.app.logs import set_up_logs
from switchboard.app.ownership import read_ours
from switchboard.app.settings import Settings, load_settings
from switchboard.cli.channels.account import connect_account
from switchboard.cli.processes.parts import WhenTold, WhileStdin, stop_with_stdin
from switchboard.connectors.kernel.accounts import Configured, pause_file, read_account
from switchboard.connectors.kernel.answers import TokenRefused
from switchboard.domain.errors import ConfigurationError
from switchboard.tasks import first_of


def connect(
    name: Annotated[str, typer.Argument(help="The account: its file is NAME.toml in the directory channels.d.")],
    *,
    while_stdin: WhileStdin = False,
    when_told: WhenTold = False,
) -> None:
    """Connect one account of a channel: receive its messages, and send the replies. `switchboard up` does it for all.

    A second process of the same account stands by, and takes over when the first is gone.
    """
    settings = load_settings()
    set_up_logs(settings.log_level)
    file = settings.channels_dir / f"{name}.toml"
    account = read_account(file, read_ours, settings.public_url)
    if pause_file(file).exists():
        raise ConfigurationError(f"the account {name!r} is paused; `switchboard channels resume {name}` lets it go on")
    try:
        code = asyncio.run(_until_told(settings, account, while_stdin=while_stdin, when_told=when_told))
    except TokenRefused:
        if file.exists():
            raise
        return  # the account is being removed, which revokes its token
    if code:
        sys.exit(code)


async def _until_told(settings: Settings, account: Configured, *, while_stdin: bool, when_told: bool) -> int:
    stop, begin = asyncio.Event(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    if while_stdin:
        stop_with_stdin(stop, begin)
    if when_told:
        await first_of(begin.wait(), stop.wait())
    return await connect_account(settings, account, stop)
