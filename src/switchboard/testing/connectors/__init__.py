"""Conformance of connectors: what every channel must do, as checks that a test of a channel runs.

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    async def test_my_channel(check: ConnectorCheck) -> None:
        await check(MyDriver())

A `Driver` is the other side of the platform: it lets a person write, and shows what the account has sent. The kernel
runs against a scripted switchboard in memory, and dies at every request. A check raises `AssertionError` that says what
went wrong. Next: `ports/connector.py`, the contract that is checked here.
"""

from switchboard.testing.connectors.checks import CHECKS, ConnectorCheck
from switchboard.testing.connectors.driver import Driver, Shown
from switchboard.testing.connectors.platform import ScriptedPlatform
from switchboard.testing.connectors.switchboard import ScriptedSwitchboard

__all__ = ["CHECKS", "ConnectorCheck", "Driver", "ScriptedPlatform", "ScriptedSwitchboard", "Shown"]
