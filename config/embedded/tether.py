"""Becomes a command that the kernel ends when its parent ends: `tether.py PARENT SIGNAL USER COMMAND…`.

A program of its own rather than a function run between fork and exec: that one may deadlock as soon
as the parent has threads.
"""

import ctypes
import os
import pwd
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main() -> None:
    parent, orphan_signal, user, *command = sys.argv[1:]
    reset_signals()
    if user:
        become(user)
    if sys.platform == "linux":
        # After the change of user, which clears it.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(orphan_signal), 0, 0, 0)
    if os.getppid() != int(parent):
        sys.exit("The process that started this one is gone.")
    os.execvp(command[0], command)


def reset_signals() -> None:
    """The parent may hold signals back while it starts us, and Python ignores two of its own accord."""
    for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def become(user: str) -> None:
    entry = pwd.getpwnam(user)
    os.setgroups([])
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)


if __name__ == "__main__":
    main()
