"""Runs a command that ends when its parent does: python tied.py PARENT_PID COMMAND...

A parent that is killed (kill -9, out of memory) cannot end its children. On Linux the kernel is asked to send them a
SIGTERM then (prctl(2), PR_SET_PDEATHSIG), which outlives the exec; elsewhere the command runs untied.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    """Becomes the command."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died before the kernel was asked
            sys.exit(1)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
