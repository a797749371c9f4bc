"""The memory of a crawl over its time, as a picture: is it flat?

    .venv/bin/python -m bench.memory --png memory.png --title "..." -- ./trawl crawl --seeds seeds.txt ...

Runs the command, looks every second at what it has resident (without pages of files, which the system takes back when
it likes) and at the pages that its line of progress tells, and draws both. Ctrl-C ends the crawl and draws.
"""

import argparse
import json
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from bench import machine
from bench.plot import COLOURS, FAINT, INK, frame

EVERY_SECONDS = 1.0


class Sample(NamedTuple):
    """Seconds since the start, anonymous and whole resident memory in MB, pages fetched."""

    at: float
    anonymous: float
    resident: float
    pages: int


def watch(command: list[str], seconds: float) -> list[Sample]:
    """Runs a command to its end, or for so many seconds."""
    samples: list[Sample] = []
    pages = 0
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as crawl:

        def read() -> None:
            nonlocal pages
            assert crawl.stderr
            for line in crawl.stderr:
                if told := re.match(r"([\d,]+) pages?, ", line):
                    pages = int(told[1].replace(",", ""))
                print(line, end="", file=sys.stderr)

        threading.Thread(target=read, daemon=True).start()
        began, asked_to_end = time.monotonic(), False
        while crawl.poll() is None:
            try:
                time.sleep(EVERY_SECONDS)
                at = time.monotonic() - began
                samples.append(Sample(at, *_memory(crawl.pid), pages))
                if at > seconds and not asked_to_end:
                    crawl.send_signal(signal.SIGINT)
                    asked_to_end = True
            except KeyboardInterrupt:
                asked_to_end = True  # the crawl got it as well
            except OSError:  # it ended meanwhile
                break
    return [sample for sample in samples if sample.anonymous]  # a process that is ending has none


def _memory(pid: int) -> tuple[float, float]:
    told = dict(re.findall(r"(RssAnon|VmRSS):\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text()))
    return int(told.get("RssAnon", 0)) / 1000, int(told.get("VmRSS", 0)) / 1000


def draw(samples: list[Sample], title: str, file: Path) -> None:
    """Memory against time, and the pages beneath. PNG, 1600 pixels wide."""
    figure = Figure(figsize=(10, 5.6), dpi=160, layout=ConstrainedLayoutEngine(w_pad=0.2, h_pad=0.15))
    FigureCanvasAgg(figure)
    memory, pages = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
    times = [sample.at / 60 for sample in samples]
    memory.plot(
        times, [sample.resident for sample in samples], color=COLOURS[2], linewidth=1.5, label="with mapped files"
    )
    memory.plot(times, [sample.anonymous for sample in samples], color=COLOURS[0], linewidth=2, label="without")
    memory.set_title("Resident memory, MB", loc="left", color=INK, fontsize=15, fontweight="bold", pad=26)
    memory.text(0, 1.03, title, transform=memory.transAxes, color=FAINT, fontsize=10)
    memory.legend(frameon=False, labelcolor=FAINT, loc="lower right")
    pages.plot(times, [sample.pages for sample in samples], color=COLOURS[1], linewidth=2)
    pages.set_title("Pages fetched", loc="left", color=INK, fontsize=11)
    pages.set_xlabel("minutes", color=FAINT)
    for axes in (memory, pages):
        frame(axes)
        axes.set_xlim(0, times[-1])
        axes.xaxis.set_major_formatter("{x:g}")
    figure.supxlabel(machine.line(machine.machine()), color=FAINT, fontsize=8)
    figure.savefig(file, format="png")


def main() -> None:
    """Draws, and prints one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--png", type=Path, required=True)
    parser.add_argument("--title", default="")
    parser.add_argument("--seconds", type=float, default=86_400, help="end the crawl after so long")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    samples = watch(options.command, options.seconds)
    if not samples:
        parser.error("the command ended before its memory could be looked at")
    draw(samples, options.title, options.png)
    parts = [samples[max(0, len(samples) * share // 10 - 1)] for share in (1, 2, 3, 5, 7, 10)]
    told = [{"seconds": round(one.at), "pages": one.pages, "anonymous_mb": round(one.anonymous)} for one in parts]
    print(json.dumps({"samples": told, "peak_mb": round(max(one.resident for one in samples))}, indent=2))


if __name__ == "__main__":
    main()
