"""What a process reads of installed packages at its start; those that `forked.py` forks have it from the one before.

It is a tenth and more of what a start takes. A process with packages of its own, in PYTHONPATH, reads again.
"""

from __future__ import annotations

from switchboard.transport.plug_ins import plug_ins

for _kind in ("channels", "connectors", "engines", "modules"):
    plug_ins(f"switchboard.{_kind}")
