"""python -m tests.faults [--port P]: the fault server by hand."""

import argparse
import contextlib

from tests.faults.server import FaultServer
from tests.faults.table import FAULTS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description="serves odd HTTP answers by name")
    parser.add_argument("--port", type=int, default=8001)
    options = parser.parse_args()
    with FaultServer(options.port) as server, contextlib.suppress(KeyboardInterrupt):
        for name, fault in FAULTS.items():
            expected = fault.kind or (f"HTTP {fault.status}" if not fault.paused else fault.paused)
            print(f"{server.url}fault/{name:22} {expected:20} {fault.what}")
        print(server.url, flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
