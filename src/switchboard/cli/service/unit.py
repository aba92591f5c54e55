"""The text of the unit, from a plan: what it runs, as whom, what it may write, how it is hardened.

Called by `commands.py`. In: a `UnitPlan`; out: its text, which `is_unchanged` recognizes until somebody
edits it. Pure.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from switchboard.domain.errors import ConfigurationError

NAME: Final = "switchboard.service"
WATCHDOG_S: Final = 60
"""A flooded server was seen to be silent for 35 s."""
_STOP_AFTER_DRAIN_S: Final = 40
"""The server, the connectors and the database end after the worker has drained."""

LEFT_OUT: Final[Mapping[str, str]] = {
    "RestrictNamespaces": "bwrap, the sandbox of commands, makes namespaces",
    "PrivateUsers": "in its user namespace bwrap could not make its own",
    "ProtectProc": "bwrap may mount its own /proc only where the whole one is seen",
    "ProcSubset": "the same",
    "ProtectKernelTunables": "the same: parts of /proc would be covered",
    "ProtectKernelLogs": "the same",
    "SystemCallFilter": "~@mount would forbid what bwrap is made of; it has a filter of its own for commands",
    "ProtectHostname": "bwrap gives commands a host name of their own",
    "ProtectControlGroups": "commands are limited in control groups where these can be made",
    "MemoryDenyWriteExecute": "programs of butlers compile code as they run, as Node.js does",
    "ProtectHome": "programs of butlers, and their logins, may be installed in a home directory",
}
"""Options of hardening that are not in the unit, and why."""
_EVERYWHERE: Final = (
    "NoNewPrivileges=yes",
    "LockPersonality=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",
    "SystemCallArchitectures=native",
    "UMask=0077",
)
_OF_THE_SYSTEM: Final = ("CapabilityBoundingSet=", "ProtectSystem=strict", "PrivateTmp=yes", "ProtectKernelModules=yes")
_MARK: Final = re.compile(r"# Written by `switchboard service install` \(sha256 ([0-9a-f]{64})\)")


class UnitPlan(Struct, frozen=True):
    """What the unit says. All paths are absolute.

    `program` is started in `directory`, where `switchboard.toml` is. `account`: who runs a unit of the system; None:
    the unit belongs to a user. `writable`: what it may write besides `data_dir`. `credentials`: files with secrets, by
    name. `drain_s`: the seconds that a worker has to finish. `watchdog`: whether a hung process is restarted.
    """

    program: Path
    directory: Path
    data_dir: Path
    account: str | None
    writable: tuple[Path, ...]
    credentials: Mapping[str, Path]
    drain_s: float
    watchdog: bool

    @property
    def credentials_dir(self) -> str:
        """Where the process finds its credentials; `%t` of a user's unit is the directory in XDG_RUNTIME_DIR."""
        return f"{'%t' if self.account is None else '/run'}/credentials/{NAME}"


def unit_text(plan: UnitPlan) -> str:
    """The unit file. Raises ConfigurationError for a path that no unit can name."""
    body = "\n".join(
        (
            *_unit_section(plan),
            "",
            *_service_section(plan),
            "",
            *_hardening_lines(plan),
            "",
            *_install_section(plan),
            "",
        )
    )
    digest = hashlib.sha256(body.encode()).hexdigest()
    return f"# Written by `switchboard service install` (sha256 {digest})\n{body}"


def is_unchanged(text: str) -> bool:
    """Whether a unit file is one of ours that nobody has edited."""
    first, _, body = text.partition("\n")
    mark = _MARK.fullmatch(first)
    return mark is not None and mark[1] == hashlib.sha256(body.encode()).hexdigest()


def _unit_section(plan: UnitPlan) -> tuple[str, ...]:
    online = ("After=network-online.target", "Wants=network-online.target") if plan.account else ()
    edit = f"systemctl{'' if plan.account else ' --user'} edit switchboard"
    return (
        f"# Your own changes belong in a drop-in, which stays: {edit}",
        "[Unit]",
        "Description=Switchboard, which connects messages and agents",
        *online,
    )


def _service_section(plan: UnitPlan) -> tuple[str, ...]:
    return (
        "[Service]",
        "Type=notify",
        *((f"User={plan.account}",) if plan.account else ()),
        f"WorkingDirectory={_plain_value(plan.directory)}",
        f"Environment={_quoted(f'SWITCHBOARD_DATA_DIR={plan.data_dir}')}",
        *(f"LoadCredential={name}:{_plain_value(file)}" for name, file in sorted(plan.credentials.items())),
        f"ExecStart={_quoted(plan.program)} up",
        "# A database that was cut off recovers, and a new release may change its tables: that takes its time.",
        "TimeoutStartSec=infinity",
        "# Only the main process is asked to end; it ends the others, the database last.",
        "KillMode=mixed",
        f"TimeoutStopSec={math.ceil(plan.drain_s) + _STOP_AFTER_DRAIN_S}",
        "Restart=on-failure",
        "RestartSec=2",
        "# A program of a butler that takes too much memory ends alone.",
        "OOMPolicy=continue",
        *((f"WatchdogSec={WATCHDOG_S}",) if plan.watchdog else ()),
    )


def _hardening_lines(plan: UnitPlan) -> tuple[str, ...]:
    left_out = tuple(f"#   {name}: {reason}" for name, reason in LEFT_OUT.items())
    told = "# Hardened as far as the sandbox allows. Left out on purpose:"
    if plan.account is None:
        why = "#   what closes directories: in a unit of a user it implies PrivateUsers"
        return (told, *left_out, why, *_EVERYWHERE)
    # A place that is not there would prevent the start; without the data directory there is none anyway.
    writable = (f"ReadWritePaths={_quoted(f'-{place}')}" for place in plan.writable)
    data = f"ReadWritePaths={_quoted(plan.data_dir)}"
    return (told, *left_out, *_EVERYWHERE, *_OF_THE_SYSTEM, data, *writable)


def _install_section(plan: UnitPlan) -> tuple[str, ...]:
    return ("[Install]", f"WantedBy={'default' if plan.account is None else 'multi-user'}.target")


def _quoted(value: object) -> str:
    text = _plain_value(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _plain_value(value: object) -> str:
    """For options whose values are the rest of the line."""
    text = str(value)
    if not text.isprintable():
        raise ConfigurationError(f"{text!r} cannot stand in a unit file: it has a character that is not printable")
    if text.endswith("\\") or text != text.strip():
        raise ConfigurationError(
            f"{text!r} cannot stand in a unit file: a blank is around it, or a backslash at its end"
        )
    return text.replace("%", "%%")
