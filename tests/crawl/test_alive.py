"""Which process counts as alive when its hosts are given back."""

import os
import signal
import subprocess
import sys

from crawl.local import is_alive


def test_a_process_that_was_killed_is_gone_although_its_parent_has_not_looked() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert is_alive(child.pid)
        child.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and stays a zombie
        assert not is_alive(child.pid)
    assert not is_alive(child.pid)
    assert not is_alive(os.getpid()), "another process"
