"""The manifests of connectors: they import no client, and the page of what channels can do is made of them."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Final

import pytest
from msgspec.structs import replace

from switchboard.connectors.telegram.manifest import MANIFEST
from switchboard.ports.connector import Capabilities
from switchboard.testing.connectors import MORE_CHECKS, driver
from tests import capabilities
from tests.documents import HOME

ADDING: Final = HOME / "docs/add-a-channel.md"
NEEDED: Final = {"annotated_types", "msgspec", "pydantic", "pydantic_core", "typing_extensions", "typing_inspection"}
"""The packages of others that may be imported: those of settings and values."""
ABLE: Final = MANIFEST.capabilities
CLIENTS: Final = {"asyncio", "imaplib", "smtplib", "ssl"}
"""Of the standard library, what only an open account needs."""
LOAD: Final = """
import sys
from importlib.metadata import entry_points
for one in entry_points(group="switchboard.connectors"):
    one.load()
    print(one.name, *{name.partition(".")[0] for name in sys.modules})
"""


def test_a_manifest_imports_no_client() -> None:
    """All are read for every account of every channel, by the server and by most commands."""
    done = subprocess.run([sys.executable, "-c", LOAD], capture_output=True, text=True, check=True)
    loaded = {name: set(modules) for name, *modules in map(str.split, done.stdout.splitlines())}
    assert {"email", "telegram"} <= loaded.keys()
    for name, modules in loaded.items():
        others = {one for one in modules - set(sys.stdlib_module_names) - {"switchboard"} if not one.startswith("_")}
        assert (name, others - NEEDED, modules & CLIENTS) == (name, set(), set())


def test_the_page_of_what_channels_can_do_is_current() -> None:
    written = capabilities.PAGE.read_text(encoding="utf-8")
    assert written == capabilities.page(capabilities.manifests()), "`make capabilities` writes it anew"


def test_every_law_is_on_the_page_for_authors() -> None:
    """With its driver and the methods that select it."""
    rows = [line for line in ADDING.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    said = " ".join(row.split("|")[1] for row in rows)
    drivers = {name for name in vars(driver) if name.endswith("Driver")}
    assert {word for word in re.findall(r"`(\w+)`", said) if word.endswith("Driver")} == drivers
    assert {name for _, needed in MORE_CHECKS for name in needed} <= set(re.findall(r"`(\w+)`", said))


@pytest.mark.parametrize(
    ("able", "row"),
    [
        (replace(ABLE, text_limit=2000), "| text of one message | 2,000 units of UTF-16 |"),
        (replace(ABLE, text_unit="bytes"), "| text of one message | 4,096 bytes of UTF-8 |"),
        (replace(ABLE, max_file_out=0), "| files of a reply, at most | none |"),
        (
            replace(ABLE, no_caption=("audio/*",)),
            "| text with a file | 1,024 units of UTF-16; none with `audio/*` |",
        ),
        (replace(ABLE, buttons=3, label_limit=20), "| [buttons](../api.md#buttons) | 3, with 20 characters |"),
        (
            replace(ABLE, idempotency="key", key_window_s=120),
            "| a message that may have been sent | the platform knows it by its key, for 2 min; later: sent again, "
            "with a note that it may be a repeat |",
        ),
        (replace(ABLE, per_group=None, per_account_s=0.0), "| rates | one a second in a conversation |"),
        (replace(ABLE, stale_s=(86_400.0, 86_400.0)), "| too old to be answered | 24 h |"),
    ],
)
def test_what_a_manifest_says_is_on_the_page(able: Capabilities, row: str) -> None:
    assert f"{row}\n" in capabilities.page([replace(MANIFEST, capabilities=able)])
