"""Conformance of connectors: what every channel must do, as checks that a test of a channel runs.

    @pytest.mark.parametrize("check", checks_for(MyDriver), ids=lambda check: check.__name__)
    def test_my_channel(check: ConnectorCheck) -> None:
        in_no_time(check(MyDriver()))

A `Driver` is the other side of the platform: it lets a person write, and shows what the account has sent; additional
methods allow more laws to be checked. The kernel runs against a scripted switchboard in memory, and dies at every named
point and around every request. A check raises `AssertionError` that says what went wrong. `in_no_time` is for drivers
whose platform lives in the test's process, `in_its_time` for others. `killed_while_receiving` and
`killed_while_sending` kill as often as you like, for a `table`. Next: `ports/connector.py`, the contract.
"""

from switchboard.testing.connectors.checks import CHECKS, MORE_CHECKS, ConnectorCheck, checks_for
from switchboard.testing.connectors.clock import in_its_time, in_no_time, passes
from switchboard.testing.connectors.driver import (
    BusyDriver,
    ButtonDriver,
    CaptionDriver,
    CountingDriver,
    DeafDriver,
    DeletingDriver,
    Driver,
    EditingDriver,
    FileDriver,
    GapDriver,
    KeyDriver,
    LateDriver,
    LeavingDriver,
    LosingDriver,
    PushDriver,
    QuotaDriver,
    Received,
    RenewingDriver,
    SentFileDriver,
    SharedDriver,
    Shown,
    SignInDriver,
    SplittingDriver,
    ThreadDriver,
)
from switchboard.testing.connectors.killing import (
    PUSHING_DEATHS,
    RECEIVING_DEATHS,
    SENDING_DEATHS,
    Killed,
    killed_while_receiving,
    killed_while_sending,
    table,
)
from switchboard.testing.connectors.platform import ScriptedPlatform
from switchboard.testing.connectors.push_platform import ScriptedPushPlatform
from switchboard.testing.connectors.switchboard import ScriptedSwitchboard

__all__ = [
    "CHECKS",
    "MORE_CHECKS",
    "PUSHING_DEATHS",
    "RECEIVING_DEATHS",
    "SENDING_DEATHS",
    "BusyDriver",
    "ButtonDriver",
    "CaptionDriver",
    "ConnectorCheck",
    "CountingDriver",
    "DeafDriver",
    "DeletingDriver",
    "Driver",
    "EditingDriver",
    "FileDriver",
    "GapDriver",
    "KeyDriver",
    "Killed",
    "LateDriver",
    "LeavingDriver",
    "LosingDriver",
    "PushDriver",
    "QuotaDriver",
    "Received",
    "RenewingDriver",
    "ScriptedPlatform",
    "ScriptedPushPlatform",
    "ScriptedSwitchboard",
    "SentFileDriver",
    "SharedDriver",
    "Shown",
    "SignInDriver",
    "SplittingDriver",
    "ThreadDriver",
    "checks_for",
    "in_its_time",
    "in_no_time",
    "killed_while_receiving",
    "killed_while_sending",
    "passes",
    "table",
]
