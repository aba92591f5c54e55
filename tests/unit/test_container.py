"""The files of containers agree with the schema of Compose, with each other, and with this release."""

from __future__ import annotations

import re
import subprocess
import sys

from switchboard import __version__
from tests.container import ADDRESS, DEBIAN, UID
from tests.documents import HOME

CONTAINERFILE = (HOME / "Containerfile").read_text(encoding="utf-8")
COMPOSE = HOME / "compose.yaml"


def test_the_compose_file_follows_the_schema() -> None:
    command = (sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE))
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_what_is_tried_is_what_the_files_say() -> None:
    compose, port = COMPOSE.read_text(encoding="utf-8"), ADDRESS.rpartition(":")[2]
    assert re.search(rf"^ARG BASE=\S+:{DEBIAN}-\S+$", CONTAINERFILE, re.MULTILINE)
    assert f"USER {UID}:{UID}" in CONTAINERFILE
    assert f"EXPOSE {port}" in CONTAINERFILE
    assert f"{ADDRESS}/health" in CONTAINERFILE
    assert f"127.0.0.1:{port}:{port}" in compose
    assert f"image: switchboard:{__version__}" in compose
    assert all(f"house:{place}" in compose for place in re.findall(r"^VOLUME (\S+)", CONTAINERFILE, re.MULTILINE))
