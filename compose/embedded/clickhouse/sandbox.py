"""Takes the host away from this process, by the kernel: files outside of the data folder, programs, TCP connections.

Purpose: the engine evaluates SQL that hides in strings (``format('JSONEachRow', 'a String ALIAS file(…)', …)``,
measured with 26.9), which no look at tokens finds. Landlock (Linux ≥ 5.13) denies it at the system call: after
`confine` this thread, and every thread it starts, can open files only beneath the folders given, execute nothing and
(≥ 6.7) connect nowhere. Sockets and files that are already open stay usable. Invariants: it cannot be undone; where
the kernel has no Landlock nothing changes and the caller is told.

Before it in the flow: ``__main__``, once. After it: the imports of ``engine`` and ``server`` (chdb starts threads when
it is imported, and Landlock binds only the calling thread and those it starts).
"""

import ctypes
import os
import struct
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same numbers on every architecture
_VERSION_FLAG = 1
_RULE_PATH_BENEATH = 1
_PR_SET_NO_NEW_PRIVS = 38

_READ_FILE, _READ_DIR, _WRITE_FILE, _TRUNCATE, _IOCTL = 1 << 2, 1 << 3, 1 << 1, 1 << 14, 1 << 15
_ALL_OF_FIRST_ABI = (1 << 13) - 1
_REFER = 1 << 13
_EXECUTE = 1 << 0
_CONNECT_TCP = 1 << 1
# ABI in which a right came; asking an older kernel for it is an error.
_ABI_OF_REFER, _ABI_OF_TRUNCATE, _ABI_OF_TCP, _ABI_OF_IOCTL = 2, 3, 4, 5

# What the engine and Python read of the system: shared libraries, time zones, memory and CPU figures, random bytes.
_SYSTEM_READABLE = (
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/etc/ld.so.cache",
    "/usr/share/zoneinfo",
    "/sys/fs/cgroup",
    "/sys/devices/system",
    "/dev/urandom",
    "/dev/null",
    "/proc/self/maps",  # glibc finds the main thread's stack in it
    "/proc/self/auxv",  # the engine looks for it behind the environment otherwise, which Python has moved: a crash
    "/proc/meminfo",
    "/proc/cpuinfo",
    "/proc/stat",
    "/proc/uptime",
    "/proc/loadavg",
)


def confine(folder: Path) -> bool:
    """Leave this process nothing but ``folder`` (read and write) and Python's own code (read); return whether it is so."""
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    abi = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG))
    if abi < 1:
        return False
    everything = _ALL_OF_FIRST_ABI
    everything |= _REFER if abi >= _ABI_OF_REFER else 0
    everything |= _TRUNCATE if abi >= _ABI_OF_TRUNCATE else 0
    everything |= _IOCTL if abi >= _ABI_OF_IOCTL else 0
    handled = (
        struct.pack("QQ", everything, _CONNECT_TCP) if abi >= _ABI_OF_TCP else struct.pack("Q", everything)
    )
    ruleset = libc.syscall(_CREATE_RULESET, handled, ctypes.c_size_t(len(handled)), ctypes.c_uint32(0))
    if ruleset < 0:
        return False
    try:
        _allow(libc, ruleset, folder, everything & ~_EXECUTE)
        for path in _readable():
            _allow(libc, ruleset, path, _READ_FILE | _READ_DIR if path.is_dir() else _READ_FILE)
        # Python looks for modules by listing the folder that our package lies in; its files stay out of reach.
        _allow(libc, ruleset, Path(__file__).parents[3], _READ_DIR)
        _allow(libc, ruleset, Path("/dev/null"), _READ_FILE | _WRITE_FILE)
        if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            return False
        return bool(libc.syscall(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0)) == 0)
    finally:
        os.close(ruleset)


def _readable() -> Iterable[Path]:
    """Return the existing paths that Python and the engine read after the start."""
    ours = Path(__file__).parents[2]
    code = {sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    places = [str(ours), str(Path(sys.base_prefix) / "lib"), *sorted(code), *_SYSTEM_READABLE]
    return [path for path in map(Path, places) if path.exists()]


def _allow(libc: ctypes.CDLL, ruleset: int, path: Path, rights: int) -> None:
    """Add one rule; raise OSError where the kernel refuses it."""
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = struct.pack("=Qi", rights, place)
        if libc.syscall(_ADD_RULE, ctypes.c_int(ruleset), _RULE_PATH_BENEATH, rule, ctypes.c_uint32(0)) != 0:
            raise OSError(ctypes.get_errno(), f"Landlock refuses a rule for {path}")
    finally:
        os.close(place)
