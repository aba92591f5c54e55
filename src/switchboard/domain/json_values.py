"""What is JSON: documents of others, and what is kept or sent as such.

Used wherever a value is JSON and nothing more is known of it; where its fields are known, there is a type for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

JsonObject = dict[str, Any]
"""A JSON object that may be changed."""
JsonMapping = Mapping[str, Any]
"""A JSON object to read."""
