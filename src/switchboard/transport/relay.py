"""The MCP server that a command-line program starts: it only passes lines between the program and a socket of ours.

`llm/tool_server.py` listens at the socket and names this file in the settings of the program, which starts it by its
path, without any package of ours: `relay.py SOCKET`. It ends when either side ends, so a program that outlives its
worker has no tools.
"""

import os
import select
import socket
import sys

_PIECE = 65_536


def main() -> int:
    """Pass on data until one side has ended."""
    directory, name = os.path.split(sys.argv[1])
    os.chdir(directory)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as ours:
        ours.connect(name)
        while True:
            ready, _, _ = select.select([0, ours.fileno()], [], [])
            if ours.fileno() in ready:
                if not (data := ours.recv(_PIECE)):
                    return 0
                _write_all(data)
            if 0 in ready:
                if not (data := os.read(0, _PIECE)):
                    return 0
                ours.sendall(data)


def _write_all(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    sys.exit(main())
