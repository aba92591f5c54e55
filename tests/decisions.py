"""The index of decisions by area, made of the pages themselves.

`make decisions` writes `docs/decisions/README.md`; `tests/unit/test_docs.py` compares. In: the first line of each page,
its title, and its third line, `Area: ` and one of `AREAS`; a page that another replaces says `Replaced by [0122](…).`
after it, which is repeated in the index. Next: nobody; the numbers of pages never change.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Final

DIRECTORY: Final = Path(__file__).parent.parent / "docs" / "decisions"
INDEX: Final = DIRECTORY / "README.md"

AREAS: Final = {
    "engine": "Engine: lanes, turns, steps, waiting",
    "database": "Database: tables, statements, schema, backup",
    "routing": "Routing: teams, rules, classification, dead letters",
    "models": "Models: requests, limits, outages",
    "tools": "Tools, MCP servers, commands",
    "plans": "Plans",
    "words": "Words of others, memory, approvals",
    "channels": "Channels: connectors, accounts, replies, notices",
    "mail": "Mail and files",
    "interfaces": "Interfaces: HTTP, MCP, gateway, streams",
    "code": "Code: layers, values, fast paths, dependencies",
    "operation": "Operation: processes, installation, what it takes",
    "work": "Tests, benchmarks, releases",
}
"""The areas in the order of the index, with their headings."""

_HEAD: Final = re.compile(r"# (?P<number>\d{4}) (?P<title>.+)\n\nArea: (?P<area>\w+)(?:\. Replaced by (?P<by>.+)\.)?\n")


def index(directory: Path = DIRECTORY) -> str:
    """The text of the index. Raises `ValueError`, naming the page, if a page does not begin as it must."""
    by_area: defaultdict[str, list[str]] = defaultdict(list)
    for page in sorted(directory.glob("0*.md")):
        head = _HEAD.match(page.read_text(encoding="utf-8"))
        if head is None or head["area"] not in AREAS or head["number"] != page.name[:4]:
            raise ValueError(
                f"docs/decisions/{page.name}: begin with `# {page.name[:4]} Title`, an empty line, and `Area: ` "
                f"with one of {', '.join(AREAS)}; then `make decisions`"
            )
        replaced = f" (replaced by {head['by']})" if head["by"] else ""
        by_area[head["area"]].append(f"- [{head['number']}]({page.name}) {head['title']}{replaced}\n")
    sections = (f"\n## {heading}\n\n{''.join(by_area[area])}" for area, heading in AREAS.items() if area in by_area)
    return f"{_PREFACE}{''.join(sections)}"


_PREFACE: Final = """# Decisions

One short page per decision: what was decided, why, and what it costs. Numbers never change. A superseded decision \
keeps its page, and says at its top what replaces it. `make decisions` makes this list from the `Area:` line of each.
"""


if __name__ == "__main__":
    INDEX.write_text(index(), encoding="utf-8")
