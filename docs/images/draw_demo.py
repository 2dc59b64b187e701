"""Draw the README's figure from the first of several runs of spa/frozen-lake, and print rows for the README and notes.

python docs/images/draw_demo.py runs/demo runs/seed-1 runs/seed-2
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
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
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("runs", type=Path, nargs="+", help="finished runs of spa/frozen-lake, a seed each")
    arguments.add_argument("--out", type=Path, default=Path(__file__).with_name("demo.svg"))
    chosen = arguments.parse_args()
    tables = [json.loads((run / "summary.json").read_text())["tables"][0] for run in chosen.runs]
    metrics = [json.loads(line) for line in (chosen.runs[0] / "metrics.jsonl").read_text().splitlines()]
    draw(metrics, tables[0], chosen.out)
    infos = [json.loads((run / "run.json").read_text()) for run in chosen.runs]
    for line in [
        *readme_rows(tables),
        "",
        *(row for pair in zip(tables, infos, strict=True) for row in result_rows(*pair)),
    ]:
        print(line)


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


def readme_rows(tables: list[dict[str, Any]]) -> Iterator[str]:
    """A row an agent: its mean over the seeds and each seed's own number."""
    columns = [column for column in ("success", "prediction exact") if column in tables[0]["columns"]]
    yield "| agent | " + " | ".join(f"{column}, %: mean (each seed)" for column in columns) + " |"
    yield "|---" * (len(columns) + 1) + "|"
    for rows in zip(*(table["rows"] for table in tables), strict=True):
        cells = [[share(row[column]) for row in rows] for column in columns]
        yield f"| {rows[0]['agent']} | " + " | ".join(over_seeds(values) for values in cells) + " |"


def over_seeds(values: list[str]) -> str:
    """`90.3 (90.1, 91.2, 89.6)`; empty where nothing was measured."""
    numbers = [float(value.partition(" ")[0]) for value in values if value]
    if not numbers:
        return ""
    return f"{sum(numbers) / len(numbers):.1f} ({', '.join(f'{number:.1f}' for number in numbers)})"


def result_rows(table: dict[str, Any], info: dict[str, Any]) -> Iterator[str]:
    """Rows of docs/notes/spa.md; replace HARDWARE yourself."""
    pass_at = next(column for column in table["columns"] if column.startswith("pass@"))
    seconds = sum(stage["seconds"] for stage in info["stages"].values())
    commit, time = (info.get("commit") or "unknown")[:8], f"{seconds / 60:.1f} min"
    for row in table["rows"]:
        model, _, name = row["agent"].rpartition(" ")
        cell, before = row["success"], info["stages"].get(f"sft-{name}", {}).get("result", {}).get("measured", {})
        reached = [before.get("prediction"), row.get("prediction exact")]
        shown = ", ".join(share(one).partition(" ")[0] for one in reached if share(one))
        whole = f"{100 * cell['low']:.1f} to {100 * cell['high']:.1f}"
        yield (
            f"| {model} | {name} | {100 * cell['value']:.1f} | {whole} | {share(row[pass_at]).partition(' ')[0]} "
            f"| {shown} | {cell['n']} | {info['seed']} | {commit} | HARDWARE | {time} |"
        )


def share(cell: Any) -> str:
    """`48.4 (43.6 to 53.5)`; empty where nothing was measured."""
    if not isinstance(cell, dict) or cell.get("value") is None:
        return ""
    return f"{100 * cell['value']:.1f} ({100 * cell['low']:.1f} to {100 * cell['high']:.1f})"


if __name__ == "__main__":
    main()
