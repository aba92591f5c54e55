"""Types for JSON: documents from outside, and values that are stored or sent as JSON.

Used where nothing more is known about a value; a value whose fields are known has a type of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

JsonObject = dict[str, Any]
"""A JSON object that may be changed."""
JsonMapping = Mapping[str, Any]
"""A JSON object that is only read."""
