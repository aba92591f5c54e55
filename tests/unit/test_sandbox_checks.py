"""What `switchboard doctor` recommends where the sandbox does not work."""

from __future__ import annotations

import pytest

from switchboard.sandbox.checks import remedy_of

BWRAP = "bubblewrap does not work here: bwrap: "


@pytest.mark.parametrize(
    ("lacking", "option"),
    [
        (f"{BWRAP}No permissions to create new namespace, likely because the kernel does not allow …", "seccomp="),
        (f"{BWRAP}Creating new namespace failed: Operation not permitted", "seccomp="),
        (f"{BWRAP}Can't mount proc on /proc: Operation not permitted", "systempaths="),
        (f"{BWRAP}Failed to make / slave: Permission denied", "apparmor="),
        ("bubblewrap (bwrap) is not installed", None),
    ],
)
def test_in_a_container_the_option_that_permits_it_is_named(lacking: str, option: str | None) -> None:
    assert "--security-opt" not in remedy_of(lacking, contained=False)
    said = remedy_of(lacking, contained=True)
    assert ("--security-opt" in said) == (option is not None)
    assert option is None or said.startswith(f"start the container with --security-opt {option}")
