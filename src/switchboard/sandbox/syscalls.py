"""A filter of the system calls that the kernel refuses in a sandbox (seccomp), in its machine code. Pure.

`run.py` passes it to bwrap. The filter refuses memory that belongs to no process, which the watchdog would not see;
files that run with their owner's rights, because the owner may be root; sockets that reach out of a network namespace;
and parts of the kernel that commands do not need.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator, Mapping
from typing import Final

MACHINE: Final = "x86_64"
"""The architecture of these numbers, as named by `os.uname`."""
_ARCHITECTURE: Final = 0xC000003E
_FOREIGN: Final = 0x40000000
"""Numbers from here on belong to another set of calls (x32)."""
_OTHER_USERS_RIGHTS: Final = 0o6000
_NEW_NAMESPACES: Final = 0x7E020080
"""CLONE_NEWUSER, NEWNS, NEWPID, NEWNET, NEWIPC, NEWUTS, NEWCGROUP, NEWTIME."""

UNKNOWN: Final = {
    "clone3": 435,  # its flags are in memory, which a filter cannot read; the C library falls back to clone
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "io_uring_setup": 425,
    "memfd_create": 319,
    "memfd_secret": 447,
    "openat2": 437,  # likewise
}
"""Refused as if the kernel did not have them."""
FORBIDDEN: Final = {
    "acct": 163,
    "add_key": 248,
    "bpf": 321,
    "delete_module": 176,
    "finit_module": 313,
    "fsconfig": 431,
    "fsmount": 432,
    "fsopen": 430,
    "fspick": 433,
    "init_module": 175,
    "kcmp": 312,
    "kexec_file_load": 320,
    "kexec_load": 246,
    "keyctl": 250,
    "mount": 165,
    "mount_setattr": 442,
    "move_mount": 429,
    "mq_open": 240,
    "msgget": 68,
    "open_by_handle_at": 304,
    "open_tree": 428,
    "perf_event_open": 298,
    "pidfd_getfd": 438,
    "pivot_root": 155,
    "process_madvise": 440,
    "process_mrelease": 448,
    "process_vm_readv": 310,
    "process_vm_writev": 311,
    "ptrace": 101,
    "quotactl": 179,
    "reboot": 169,
    "request_key": 249,
    "semget": 64,
    "setns": 308,
    "shmget": 29,
    "swapoff": 168,
    "swapon": 167,
    "syslog": 103,
    "umount2": 166,
    "unshare": 272,
    "userfaultfd": 323,
    "vmsplice": 278,
}
"""Refused, whatever the arguments."""
WITH_BITS: Final = {
    "chmod": (90, 1, _OTHER_USERS_RIGHTS),
    "clone": (56, 0, _NEW_NAMESPACES),
    "creat": (85, 1, _OTHER_USERS_RIGHTS),
    "fchmod": (91, 1, _OTHER_USERS_RIGHTS),
    "fchmodat": (268, 2, _OTHER_USERS_RIGHTS),
    "fchmodat2": (452, 2, _OTHER_USERS_RIGHTS),
    "mknod": (133, 1, _OTHER_USERS_RIGHTS),
    "mknodat": (259, 2, _OTHER_USERS_RIGHTS),
    "open": (2, 2, _OTHER_USERS_RIGHTS),
    "openat": (257, 3, _OTHER_USERS_RIGHTS),
}
"""Refused if an argument has one of these bits: the number of the call, that of the argument, the bits."""
SOCKET: Final = 41
FAMILIES: Final = {"unix": 1, "inet": 2, "inet6": 10, "netlink": 16}
"""Socket families that a network namespace confines. Through others (vsock) a virtual machine reaches its host."""

_LOAD: Final = 0x20
_IF_EQUAL: Final = 0x15
_IF_AT_LEAST: Final = 0x35
_IF_BITS: Final = 0x45
_RETURN: Final = 0x06
_ALLOW: Final = 0x7FFF0000
_ERROR: Final = 0x00050000
_AT_NUMBER: Final = 0
_AT_ARCHITECTURE: Final = 4
_AT_ARGUMENTS: Final = 16


def program() -> bytes:
    """The filter in the form that bwrap reads."""
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in _filter_instructions())


_Instruction = tuple[int, int, int, int]
"""The operation, how many instructions to skip if true and if false, and the value."""


def _filter_instructions() -> Iterator[_Instruction]:
    yield (_LOAD, 0, 0, _AT_ARCHITECTURE)
    yield (_IF_EQUAL, 1, 0, _ARCHITECTURE)
    yield _refuse_with(errno.ENOSYS)
    yield (_LOAD, 0, 0, _AT_NUMBER)
    yield (_IF_AT_LEAST, 0, 1, _FOREIGN)
    yield _refuse_with(errno.ENOSYS)
    yield from _refuse_calls(UNKNOWN, errno.ENOSYS)
    yield from _refuse_calls(FORBIDDEN, errno.EPERM)
    for number, argument, bits in WITH_BITS.values():
        yield (_IF_EQUAL, 0, 4, number)
        yield (_LOAD, 0, 0, _AT_ARGUMENTS + 8 * argument)
        yield (_IF_BITS, 0, 1, bits)
        yield _refuse_with(errno.EPERM)
        yield (_LOAD, 0, 0, _AT_NUMBER)
    yield from _socket_instructions()
    yield (_RETURN, 0, 0, _ALLOW)


def _socket_instructions() -> Iterator[_Instruction]:
    families = [*FAMILIES.values()]
    yield (_IF_EQUAL, 0, len(families) + 3, SOCKET)
    yield (_LOAD, 0, 0, _AT_ARGUMENTS)
    for n, family in enumerate(families):
        yield (_IF_EQUAL, len(families) - n, 0, family)
    yield _refuse_with(errno.EAFNOSUPPORT)
    yield (_LOAD, 0, 0, _AT_NUMBER)


def _refuse_calls(numbers: Mapping[str, int], error: int) -> Iterator[_Instruction]:
    for number in numbers.values():
        yield (_IF_EQUAL, 0, 1, number)
        yield _refuse_with(error)


def _refuse_with(error: int) -> _Instruction:
    return (_RETURN, 0, 0, _ERROR | error)
