"""Names of accounts and of their tokens. Imports nothing, as commands that only need a name load no settings."""

from __future__ import annotations

import re
from typing import Final

PREFIX: Final = "connector-"
"""Before the name of the account in the name of its token."""
ACCOUNT_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
