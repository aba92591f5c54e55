"""Ports of servers that tests start: in whatever process one asks for them, nobody gets the port of another."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests import ports

ASKING = """
import json, sys
from tests import ports
ports.MANY = int(sys.argv[1])
print(json.dumps([ports.free_port() for _ in range(8)]), flush=True)
sys.stdin.read()
"""


def test_no_two_tests_have_one_port_before_a_server_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of forty, of which three processes take eight each; by chance they would have some of them twice."""
    monkeypatch.setattr(ports, "MANY", 40)
    command = [sys.executable, "-c", ASKING, "40"]
    given = [ports.free_port() for _ in range(8)]
    others = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for other in others:
        assert other.stdout is not None
        given += json.loads(other.stdout.readline())
    for other in others:
        other.communicate()
    assert len({*given}) == len(given) == 24
