"""Which modules are opened when one is tried at the terminal: that one, and those whose offers it needs."""

from __future__ import annotations

import pytest

from switchboard.app.module_trials import modules_to_open
from switchboard.ports.module import ModuleManifest


def manifest(name: str, *, needs: tuple[str, ...] = (), offers: tuple[str, ...] = ()) -> ModuleManifest:
    return ModuleManifest(name, (), f"{name}:open", needs=needs, offers=offers)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("alone", {"alone"}),
        ("mail", {"mail", "people"}),
        ("plans", {"plans", "mail", "people"}),
        ("ring", {"ring", "gnir"}),
        ("lost", {"lost"}),
    ],
)
def test_what_a_module_needs_is_opened_with_it(name: str, expected: set[str]) -> None:
    found = [
        manifest("alone"),
        manifest("people", offers=("people",)),
        manifest("mail", needs=("people", "front_door"), offers=("mail",)),
        manifest("plans", needs=("mail",)),
        manifest("ring", needs=("gnir",), offers=("ring",)),
        manifest("gnir", needs=("ring",), offers=("gnir",)),
        manifest("lost", needs=("nothing",)),
    ]
    opened = modules_to_open(name, {one.name: one for one in found})
    assert (opened[0], {*opened}) == (name, expected)
