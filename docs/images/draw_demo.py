"""Draw the demo's curves from a run of spa/frozen-lake: `python docs/images/draw_demo.py runs/demo`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

COLOURS = {"spa": "#0b6e4f", "copy-state": "#c99700", "no-world-model": "#c8553d"}
NAMES = {"spa": "SPA", "copy-state": "copies the state", "no-world-model": "no world model"}
GREY = "#777777"


def main() -> None:
    arguments = argparse.ArgumentParser(description="Draw the demo's curves.")
    arguments.add_argument("run", type=Path, help="a finished run of spa/frozen-lake")
    arguments.add_argument("--out", type=Path, default=Path(__file__).with_name("demo.svg"))
    chosen = arguments.parse_args()
    table = json.loads((chosen.run / "summary.json").read_text())["tables"][0]
    metrics = [json.loads(line) for line in (chosen.run / "metrics.jsonl").read_text().splitlines()]
    draw(metrics, table, chosen.out)


def draw(metrics: list[dict[str, Any]], table: dict[str, Any], out: Path) -> None:
    """Three panels: learning the world, learning to act, and success on unseen levels."""
    style = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "oneiro"}
    with plt.rc_context(style):
        figure, (world, act, end) = plt.subplots(1, 3, figsize=(10, 2.9), layout="constrained")
        losses(world, metrics)
        successes(act, metrics, table)
        intervals(end, table)
        figure.savefig(out, metadata={"Date": None})


def losses(axes: Axes, metrics: list[dict[str, Any]]) -> None:
    for name, colour in COLOURS.items():
        steps, values = series(metrics, f"sft-{name}", "ce")
        axes.plot(steps, values, color=colour, label=NAMES[name], linewidth=1.2)
    axes.set(title="1  SFT: learning the world", xlabel="update", ylabel="cross-entropy", yscale="log")
    axes.legend(frameon=False)


def successes(axes: Axes, metrics: list[dict[str, Any]], table: dict[str, Any]) -> None:
    for name, colour in COLOURS.items():
        steps, values = series(metrics, f"rl-{name}", "success")
        axes.plot(steps, [100 * value for value in values], color=colour, marker=".")
    for row in table["rows"]:
        if row["agent"] == "random":
            height = 100 * row["success"]["value"]
            axes.axhline(height, color=GREY, linestyle=":")
            axes.text(1.01, height, "random", color=GREY, va="center", transform=axes.get_yaxis_transform())
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set(
        title="2  RL: new levels at every step", xlabel="step", ylabel="success on training levels, %", ylim=(0, 100)
    )


def intervals(axes: Axes, table: dict[str, Any]) -> None:
    rows = table["rows"][::-1]
    for place, row in enumerate(rows):
        cell, colour = row["success"], COLOURS.get(variant(row["agent"]), GREY)
        axes.plot([100 * cell["low"], 100 * cell["high"]], [place, place], color=colour, linewidth=2)
        axes.plot(100 * cell["value"], place, "o", color=colour)
        ahead = cell["value"] < 0.6
        axes.annotate(
            f"{100 * cell['value']:.1f}",
            (100 * (cell["high"] if ahead else cell["low"]), place),
            xytext=(6 if ahead else -6, 0),
            textcoords="offset points",
            ha="left" if ahead else "right",
            va="center",
            color=colour,
        )
    axes.set_yticks(range(len(rows)), [NAMES.get(variant(row["agent"]), row["agent"]) for row in rows])
    cases = rows[0]["success"]["n"]
    axes.set(title=f"3  {cases} unseen levels", xlabel="success, %, with 95 % intervals", xlim=(0, 105))
    axes.margins(y=0.2)


def series(metrics: list[dict[str, Any]], stage: str, key: str) -> tuple[list[int], list[float]]:
    found = [(line["step"], line[key]) for line in metrics if line["stage"] == stage and line.get(key) is not None]
    return [step for step, _ in found], [value for _, value in found]


def variant(agent: str) -> str:
    """`tiny spa` -> `spa`."""
    return agent.rpartition(" ")[2]


if __name__ == "__main__":
    main()
