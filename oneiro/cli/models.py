"""models, merge, push, check-model: bring weights to this machine, and hand them on as one folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oneiro.cli.show import JsonFile, progress, show
from oneiro.report.table import Table
from oneiro.runtime.errors import OneiroError, first_line, nearest


def offer(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="Models by name: what there is, and fetching one.")
    group.command("list")(list_models)
    group.command("get")(get)
    app.add_typer(group, name="models")
    app.command()(merge)
    app.command()(push)
    app.command("check-model")(check_model)


def list_models(json: JsonFile = None) -> None:
    """List the names that `model=NAME` understands, and whether their weights are on this machine."""
    from oneiro.models import smollm

    folder = smollm.home() / "models" / "smollm2-135m"
    table = Table("Models", ["name", "what it is", "on this machine"])
    table.add("tiny", "under a million parameters, trained from nothing by the run itself", "needs no download")
    table.add(
        "smollm2-135m", "a pretrained chat model", str(folder) if smollm.whole(folder) else "no: oneiro models get"
    )
    perceptual = smollm.home() / "models" / "lpips"
    table.add(
        "lpips",
        "AlexNet and VGG16 with LPIPS heads, for video",
        str(perceptual) if (perceptual / "manifest.json").is_file() else "no: oneiro models get",
    )
    table.add("ORG/NAME", "a causal language model of the Hugging Face hub", "fetched when first used")
    table.add("FOLDER", "a model folder, or a run directory", "as it is")
    show([table], json)


def get(name: Annotated[str, typer.Argument(help="smollm2-135m, lpips, or ORG/NAME of the Hugging Face hub.")]) -> None:
    """Fetch a model now, so that a run need not.

    \b
    oneiro models get smollm2-135m
    """

    if name == "smollm2-135m":
        from oneiro.models import smollm

        typer.echo(smollm.fetch())
    elif name == "lpips":
        from oneiro.models.video import perceptual

        typer.echo(perceptual.fetch())
    elif name.count("/") == 1:
        typer.echo(_from_hub(name))
    else:
        raise OneiroError(f"no model called '{name}' to fetch{nearest(name, ['smollm2-135m', 'lpips', 'ORG/NAME'])}")


def _from_hub(name: str) -> str:
    from huggingface_hub import snapshot_download

    try:
        return str(snapshot_download(name, allow_patterns=["*.json", "*.safetensors", "*.model", "*.jinja", "*.txt"]))
    except Exception as error:  # the hub's client raises many kinds; the person needs one line
        raise OneiroError(f"cannot fetch {name} from the Hugging Face hub: {first_line(error)}") from error


def merge(
    source: Annotated[
        Path, typer.Argument(metavar="SRC", help="A run, a checkpoint, an adapter folder, or verl's FSDP shards.")
    ],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="A folder that does not exist yet.")],
) -> None:
    """Write a trained model as one plain Hugging Face folder; a LoRA adapter is folded into its base.

    Shards of verl's FSDP trainers, of any number of ranks, are joined.

    \b
    oneiro merge runs/lake/checkpoints/rl-spa lake-model
    oneiro merge checkpoints/verl/global_step_100/actor actor-model
    """
    from oneiro.models.language import merge as merge_

    typer.echo(merge_(source, target))


def push(
    source: Annotated[Path, typer.Argument(metavar="RUN", help="A run, or one of its checkpoints.")],
    repository: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="A model repository, made if need be.")],
    row: Annotated[
        str | None, typer.Option(metavar="NAME", help="The row of the report's tables that is about this model.")
    ] = None,
    private: Annotated[bool, typer.Option("--private", help="If the repository is made: for you alone.")] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the repository there, and upload nothing.")
    ] = None,
) -> None:
    """Upload a model to the Hugging Face Hub: weights, recipe, report, and a card with the measured numbers.

    \b
    oneiro push runs/lake/checkpoints/rl-spa me/lake
    oneiro push runs/lake/checkpoints/rl-spa me/lake --out lake-repository
    """
    from oneiro.adapters import hub

    if out is not None:
        typer.echo(hub.prepare(source, repository, out, row=row))
    else:
        typer.echo(hub.push(source, repository, row=row, private=private))


def check_model(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL...", help="Folders, hub names, config.json files or architectures.", show_default=False
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every architecture of the documentation's table.")] = False,
    json: JsonFile = None,
) -> None:
    """Compare a model as Oneiro computes it with transformers, in float32: logits, samples, gradients, resume, LoRA.

    \b
    oneiro check-model smollm2-135m
    oneiro check-model gemma3_text path/to/config.json
    """
    from oneiro.diagnosis.models import ARCHITECTURES, check_model, table

    names = [*(sources or ()), *(ARCHITECTURES if every else ())]
    if not names:
        raise OneiroError("name a model: a folder, a hub name, a config.json or an architecture such as gemma3_text")
    checks = []
    with progress("models", len(names)) as bar:
        for name in names:
            checks.append(check_model(name))
            bar.advance()
    show([table(checks)], json)
    if wrong := [check.name for check in checks if not check.refused and not check.passed]:
        raise OneiroError(f"computed wrongly: {', '.join(wrong)}")
