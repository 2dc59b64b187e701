"""Draw the figure of docs/scale.md: predicted tokens a second and idle share over GPUs.

oneiro simulate RECIPE ... --json fixed.json
oneiro simulate RECIPE ... --grow --json grown.json
python docs/images/draw_simulate.py fixed.json grown.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

COLOURS = {"sync": "#c8553d", "async": "#0b6e4f"}
NAMES = {"sync": "synchronous", "async": "asynchronous"}
STYLES = {"the recipe's batch": "-", "batch grows with the GPUs": "--"}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("fixed", type=Path, help="JSON of oneiro simulate")
    arguments.add_argument("grown", type=Path, help="the same with --grow")
    arguments.add_argument("--out", type=Path, default=Path(__file__).with_name("simulate.svg"))
    chosen = arguments.parse_args()
    found = [json.loads(path.read_text())["tables"][0]["rows"] for path in (chosen.fixed, chosen.grown)]
    draw(dict(zip(STYLES, found, strict=True)), chosen.out)


def draw(found: dict[str, list[dict[str, Any]]], out: Path) -> None:
    style: dict[Any, Any] = {
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "svg.hashsalt": "oneiro",
    }
    with plt.rc_context(style):
        figure, (speed, idle) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
        lines(speed, found, "tokens/s")
        lines(idle, found, "idle, %")
        first = next(iter(found.values()))[0]
        gpus = sorted({row["GPUs"] for rows in found.values() for row in rows})
        speed.plot(
            gpus, [first["tokens/s"] * n / gpus[0] for n in gpus], color="#999999", linewidth=0.8, label="linear"
        )
        speed.set(yscale="log", title="Predicted: sampled tokens a second")
        idle.set(ylim=(0, 100), title="Predicted: idle GPUs, %")
        speed.legend(frameon=False, fontsize=8)
        figure.savefig(out, metadata={"Date": None})


def lines(axes: Axes, found: dict[str, list[dict[str, Any]]], column: str) -> None:
    for batch, rows in found.items():
        for setting, colour in COLOURS.items():
            own = [row for row in rows if row["setting"] == setting]
            label = f"{NAMES[setting]}, {batch}"
            axes.plot(
                [row["GPUs"] for row in own],
                [row[column] for row in own],
                STYLES[batch],
                color=colour,
                marker=".",
                linewidth=1.2,
                label=label,
            )
    axes.set(xscale="log", xlabel="GPUs")
    ticks = sorted({row["GPUs"] for rows in found.values() for row in rows})
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()


if __name__ == "__main__":
    main()
