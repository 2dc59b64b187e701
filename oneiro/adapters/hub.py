"""Hugging Face Hub: a trained model with its card, recipe and report, as one repository.

The card's numbers come from the run's `summary.json`, with the rows for chance and ceiling that stand beside them.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

from oneiro.models.locate import newest_weights
from oneiro.report.table import Table
from oneiro.rundir.records import read_info
from oneiro.runtime import files
from oneiro.runtime.errors import OneiroError, first_line

REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
BESIDE = ("recipe.yaml", "summary.json", "metrics.jsonl", "report.html")
"""Of a run, what goes with the weights. Not `run.json` and `log.txt`: they speak of the machine and its folders."""


def push(
    source: Path, repository: str, *, row: str | None = None, private: bool = False, endpoint: str | None = None
) -> str:
    """Upload a run, or one checkpoint of it, and return the address of its page."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    with tempfile.TemporaryDirectory() as place:
        folder = prepare(source, repository, Path(place) / "model", row=row)
        api = HfApi(endpoint=endpoint)
        try:
            api.create_repo(repository, private=private, exist_ok=True)
            done = api.upload_folder(
                repo_id=repository, folder_path=folder, commit_message=f"oneiro {metadata.version('oneiro')}"
            )
        except HfHubHTTPError as error:
            advice = "log in with `hf auth login`" if error.response.status_code in (401, 403) else "try again"
            raise OneiroError(f"the hub refused {repository} ({first_line(error, 120)}); {advice}") from error
        except Exception as error:  # every network library raises its own kind
            raise OneiroError(f"cannot reach the hub ({first_line(error, 120)}); try again") from error
    return str(done.repo_url)


def prepare(source: Path, repository: str, folder: Path, *, row: str | None = None) -> Path:
    """The repository as a folder: weights, card, recipe, tables and report."""
    if not REPOSITORY.fullmatch(repository):
        raise OneiroError(f"'{repository}' is no name of a repository; write OWNER/NAME")
    if folder.exists():
        raise OneiroError(f"{folder} exists; choose another place")
    if not source.is_dir():
        raise OneiroError(f"no folder at {source}; give a run, or one of its checkpoints")
    weights = newest_weights(source)
    run = next((place for place in (source, *source.resolve().parents) if (place / "recipe.yaml").is_file()), None)
    if run is None:
        raise OneiroError(f"{source} is no run and lies in none: there is nothing to say about it; use hf upload")
    stage = next(part for part in weights.resolve().relative_to(run.resolve()).parts if part != "checkpoints")
    shutil.copytree(weights, folder)
    for name in BESIDE:
        if (run / name).is_file():
            shutil.copyfile(run / name, folder / name)
    files.write_text(folder / "README.md", card(run, repository, stage, row))
    return folder


def card(run: Path, repository: str, stage: str, row: str | None = None) -> str:
    """The model card: what the model is, how to use it, what was measured and how it was made."""
    from huggingface_hub import ModelCardData

    recipe = yaml.safe_load((run / "recipe.yaml").read_text(encoding="utf-8"))
    summary = files.read_json(run / "summary.json") if (run / "summary.json").is_file() else {}
    tables = [Table.read(table) for table in summary.get("tables", ())]
    results = list(_results(tables, recipe, stage, row))
    if row is not None and not results:
        raise OneiroError(f"no table of {run} has measured a row called '{row}'; see oneiro report {run}")
    name = repository.partition("/")[2]
    system = str(recipe.get("system", "recipe"))
    head = ModelCardData(
        library_name="oneiro",
        tags=["world-model", "reinforcement-learning", f"oneiro-{system}"],
        model_name=name,
        eval_results=results or None,
    )
    versions = read_info(run)["versions"] if (run / "run.json").is_file() else {}
    made = ", ".join(f"{package} {version}" for package, version in versions.items())
    return "\n\n".join(
        [
            f"---\n{head.to_yaml()}\n---",
            f"# {name}",
            f"{recipe.get('about') or 'A model'} Stage `{stage}` of a run of Oneiro, system `{system}`.",
            f"The weights are a plain Hugging Face folder, which `transformers` and `oneiro` load by its name:\n\n"
            f"```bash\noneiro eval agent --world WORLD --model {repository}\n```",
            "## Results",
            *(_markdown(table) for table in tables),
            f"## How it was made\n\n`oneiro run recipe.yaml` repeats the run{f' ({made})' if made else ''}.",
        ]
    )


def _results(tables: list[Table], recipe: dict[str, Any], stage: str, row: str | None) -> Iterator[Any]:
    """The measured cells of this model's row: the one that is named, else the only one that ends like the stage."""
    from huggingface_hub import EvalResult

    variant = stage.partition("-")[2]
    for table in tables:
        first = [str(cells[0].value) for cells in table.rows]
        own = [name for name in first if (name == row if row else variant and name.split(" ")[-1] == variant)]
        if len(own) != 1:
            continue
        cells = dict(zip(table.columns, table.rows[first.index(own[0])], strict=True))
        for column, cell in cells.items():
            if cell.measured and isinstance(cell.value, float | int):
                yield EvalResult(
                    task_type="reinforcement-learning",
                    dataset_type="oneiro",
                    dataset_name=table.title,
                    metric_type=column.replace(" ", "_"),
                    metric_name=f"{column} (95 % interval {cell.low:.3f} to {cell.high:.3f}, n={cell.n})",
                    metric_value=round(float(cell.value), 6),
                )


def _markdown(table: Table) -> str:
    columns = [table.columns[place] for place in table.filled_columns()]
    lines = [" | ".join(table.heading(column) for column in columns), " | ".join("---" for _ in columns)]
    for row in table.rows:
        shown = []
        for place in table.filled_columns():
            interval = table.interval(row[place], table.columns[place])
            shown.append(table.text(row[place], table.columns[place]) + (f" ({interval})" if interval else ""))
        lines.append(" | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in shown))
    body = "\n".join(f"| {line} |" for line in lines)
    return f"### {table.title}\n\n{body}" + (f"\n\n{table.note}" if table.note else "")
