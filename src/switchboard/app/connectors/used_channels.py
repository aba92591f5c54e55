"""Which channels this installation uses: for lists to choose from. Next: `store/connectors/standing.py`."""

from __future__ import annotations

from switchboard.app.runtime import Runtime
from switchboard.store.connectors import standing


async def find_used_channels(runtime: Runtime) -> list[str]:
    """By name: those with an account that has ever reported, or with a message."""
    return await standing.channels_in_use(runtime.database)
