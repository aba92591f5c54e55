"""The documents are held against the product: what they name exists, and what exists they name."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import typer.main
from pydantic import BaseModel

from switchboard.agents.delivery import SCHEMA_VERSION as DELIVERY
from switchboard.agents.signed_post import sign
from switchboard.app.meters import Meters
from switchboard.app.settings import Settings, load_settings
from switchboard.app.wiring import Core, Switchboard
from switchboard.cli.main import COMMANDS, build
from switchboard.core.channels import CHANNELS
from switchboard.core.routing.check import check_rule
from switchboard.core.routing.facts import KEYS
from switchboard.core.routing.teamfile import TeamFile, parse_team_file
from switchboard.core.wire import parse_envelope
from switchboard.domain.routing import DeadLetterCategory, Rule, Team
from switchboard.server.http.app import create_app
from switchboard.server.mcp_tools import Tools
from tests.documents import DOCUMENTS, HOME, all_blocks, blocks, calls, codes, command_lines, links, prose, rows, steps
from tests.lab import NOW

API, README, OPERATIONS = HOME / "docs/api.md", HOME / "README.md", HOME / "docs/operations.md"
TEAMS, BUTLERS, JOURNEY = HOME / "docs/teams.md", HOME / "docs/butlers.md", HOME / "docs/journey.md"
_COMMON = {"channel", "endpoint", "sender", "thread", "chat_type"}
