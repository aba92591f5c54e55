"""A large file goes from a platform to a butler without being held whole by the connector or by the server."""

from __future__ import annotations

import pytest

from switchboard.bench.files import measure

SIZE_MB = 30.0


@pytest.mark.slow
async def test_neither_connector_nor_server_holds_a_file_whole() -> None:
    result = await measure(SIZE_MB)
    assert result.server_in_mb is not None
    assert result.server_out_mb is not None
    assert max(result.connector_mb, result.server_in_mb, result.server_out_mb) < SIZE_MB / 3
