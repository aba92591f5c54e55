"""Conformance of connectors: what every channel must do, as checks that a test of a channel runs.

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    async def test_my_channel(check: ConnectorCheck) -> None:
        await check(MyDriver())

A `Driver` is the other side of the platform: it lets a person write, and shows what the account has sent. The kernel
runs against a scripted switchboard in memory, and dies at every named point and around every request. A check raises
`AssertionError` that says what went wrong. `NETWORK_CHECKS` and `EDITING_CHECKS` are for channels of which the platform
can be out of reach, and on which people edit what they wrote, `FILE_CHECKS` for those with files, `LOSING_CHECKS` where
they must be fetched, `SENT_FILE_CHECKS` where replies can bring some. Next: `ports/connector.py`, the contract that is
checked here.
"""

from switchboard.testing.connectors.checks import (
    CHECKS,
    EDITING_CHECKS,
    NETWORK_CHECKS,
    ConnectorCheck,
    EditingCheck,
    NetworkCheck,
)
from switchboard.testing.connectors.driver import Driver, EditingDriver, NetworkDriver, Shown
from switchboard.testing.connectors.files import (
    FILE_CHECKS,
    LOSING_CHECKS,
    FileCheck,
    FileDriver,
    LosingCheck,
    LosingDriver,
)
from switchboard.testing.connectors.platform import ScriptedPlatform
from switchboard.testing.connectors.sent_files import SENT_FILE_CHECKS, Received, SentFileCheck, SentFileDriver
from switchboard.testing.connectors.switchboard import ScriptedSwitchboard

__all__ = [
    "CHECKS",
    "EDITING_CHECKS",
    "FILE_CHECKS",
    "LOSING_CHECKS",
    "NETWORK_CHECKS",
    "SENT_FILE_CHECKS",
    "ConnectorCheck",
    "Driver",
    "EditingCheck",
    "EditingDriver",
    "FileCheck",
    "FileDriver",
    "LosingCheck",
    "LosingDriver",
    "NetworkCheck",
    "NetworkDriver",
    "Received",
    "ScriptedPlatform",
    "ScriptedSwitchboard",
    "SentFileCheck",
    "SentFileDriver",
    "Shown",
]
