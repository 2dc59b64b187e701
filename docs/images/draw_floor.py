"""Draw how much of the lower bound sampling reaches, from `results/vllm.json`: `python docs/images/draw_floor.py`."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

RESULTS = Path(__file__).parents[2] / "results" / "vllm.json"
BOUND = "lower bound"
COLOURS = {"Oneiro": "#0b6e4f", "vLLM": "#c8553d"}


def shares() -> dict[str, dict[str, float]]:
    """Work -> sampler -> tokens/s as a percentage of what reading weights and caches allows."""
    table = json.loads(RESULTS.read_text())
    places = {column: place for place, column in enumerate(table["columns"])}
    model, by_work = "", dict[str, dict[str, float]]()
    for row in table["rows"]:
        named, colon, work = row["name"].partition(": ")
        model, work = (named, work) if colon else (model, row["name"].removeprefix("... ").removeprefix("0.5B, "))
        cells = row["cells"]
        by_work[f"{model}: {work}"] = {name: 100 * cells[places[name]] / cells[places[BOUND]] for name in COLOURS}
    return by_work


def draw(out: Path) -> None:
    by_work = shares()
    style = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "oneiro"}
    with plt.rc_context({**style, "svg.fonttype": "none"}):
        figure, axes = plt.subplots(figsize=(8, 3.6), layout="constrained")
        for side, (name, colour) in enumerate(COLOURS.items()):
            places = [place + 0.4 * side for place in range(len(by_work))]
            bars = axes.barh(places, [row[name] for row in by_work.values()], 0.38, color=colour, label=name)
            axes.bar_label(bars, fmt="%.0f %%", padding=3, color=colour)
        axes.set_yticks([place + 0.2 for place in range(len(by_work))], list(by_work))
        axes.invert_yaxis()
        axes.set(xlabel="tokens/s, % of what reading weights and caches allows", xlim=(0, 50))
        axes.legend(frameon=False, loc="lower right")
        figure.savefig(out, metadata={"Date": None})


if __name__ == "__main__":
    draw(Path(__file__).with_name("floor.svg"))
