"""The checks of connectors against the scripted platform, whose session and driver are in one place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from switchboard.testing.connectors import CHECKS, ConnectorCheck, ScriptedPlatform
from switchboard.testing.connectors.platform import CAPABILITIES


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_scripted_platform(check: ConnectorCheck) -> None:
    await check(ScriptedPlatform())


@pytest.mark.parametrize("check", [check for check in CHECKS if "five_parts" in check.__name__])
async def test_with_keys_no_part_is_ever_repeated(check: ConnectorCheck) -> None:
    platform = ScriptedPlatform(replace(CAPABILITIES, idempotency="lookup"))
    await check(platform)
    sent = [part.text for part in platform.posts]
    assert len(sent) == len(set(sent))
