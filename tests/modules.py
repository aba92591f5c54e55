"""Packages of modules that tests write: only their SQL, as the store needs no more of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from switchboard.ports.module import ModuleManifest

NOTES: Final = {
    "migrations/0001_note.sql": """
        create table note (account text not null, id integer generated always as identity, text text not null,
                           primary key (account, id), unique (account, text));
    """,
    "queries/notes.sql": """
-- part: mine
account = $1

-- name: all
select text from note where {{mine}} order by id;

-- name: add
insert into note (account, text) values ($1, $2);

-- name: slowly
select count(*) from generate_series(1, 4000000000) as n where n::text <> $1;

-- name: as_whom
select current_user as role, $1::text as account;
""",
}


def a_module(place: Path, name: str = "notes", sql: Mapping[str, str] = NOTES) -> ModuleManifest:
    """The manifest of a module whose files are written below `place`, which is on `sys.path`."""
    package = f"{name}_package"
    for path, text in sql.items():
        file = place / package / "sql" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return ModuleManifest(name, (), f"{package}:open_module", sql=f"{package}.sql")
