"""The rate of admission against the size of the frontier, as a picture."""

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import EngFormatter

from bench import machine
from bench.report import title

INK, FAINT = "#1f2933", "#7b8794"
NAME_HEIGHT = 0.055  # of the height of the axes
COLOURS = ["#0b6e99", "#d9730d", "#8a8f98"]


def plot(told: dict[str, Any], file: Path) -> None:
    """Draws what bench.report.summary tells: a line per design, medians over the rounds. PNG, 1600 pixels wide."""
    figure = Figure(figsize=(10, 5.6), dpi=160, layout=ConstrainedLayoutEngine(w_pad=0.2, h_pad=0.15))
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    shown = list(zip(told["designs"].items(), COLOURS, strict=False))
    for (_, design), colour in shown:
        edges = [0.0, *(window["to"] for window in design["windows"])]
        rates = [window["offered_per_s"] for window in design["windows"]]
        axes.stairs(rates, edges, color=colour, linewidth=2, baseline=None)
    frame(axes)
    axes.set_xlim(0, told["urls"])
    _name_lines(axes, [(design["windows"][-1]["offered_per_s"], name, colour) for (name, design), colour in shown])
    axes.set_title("Links offered a second", loc="left", color=INK, fontsize=15, fontweight="bold", pad=26)
    rounds = f"median of {told['rounds']} rounds" if told["rounds"] > 1 else "one round"
    axes.text(0, 1.03, f"{title(told)}; {rounds}", transform=axes.transAxes, color=FAINT, fontsize=10)
    axes.set_xlabel("distinct URLs held", color=FAINT)
    figure.supxlabel(machine.line(told["machine"]), color=FAINT, fontsize=8)
    figure.savefig(file, format="png")


def _name_lines(axes: Axes, ends: list[tuple[float, str, str]]) -> None:
    """Names (height, name, colour) to the right of where the lines end, from the bottom up and not on each other."""
    lowest = 0.0
    for height, name, colour in sorted(ends):
        at = max(height / axes.get_ylim()[1], lowest)
        axes.text(1.01, at, name, transform=axes.transAxes, color=colour, fontsize=11, va="center")
        lowest = at + NAME_HEIGHT


def frame(axes: Axes) -> None:
    """Axes in the manner of all pictures here: from zero, faint lines, no box."""
    axes.set_ylim(bottom=0)
    for formatted in (axes.xaxis, axes.yaxis):
        formatted.set_major_formatter(EngFormatter(sep="", places=None))
    axes.grid(axis="y", color="#e4e7eb", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=FAINT, length=0, labelsize=10)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color("#cbd2d9")
