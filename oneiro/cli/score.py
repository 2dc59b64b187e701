"""score: anyone's predictions beside what needs no model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oneiro.cli.show import JsonFile, show, warn

Pairs = Annotated[Path, typer.Option(metavar="FILE", help="JSON lines, a step each, with predictions.")]
Train = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The steps that the model was trained on, for the lookups.")
]
NO_TRAIN = "without --train FILE there is no lookup: a model that only remembers its training steps is not found out"


def offer(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="Score predictions of any model, beside no change and lookups.")
    for command in (text, page, video):
        group.command()(command)
    app.add_typer(group, name="score")


def text(pairs: Pairs, train: Train = None, json: JsonFile = None) -> None:
    """Score predicted next states, texts or JSON: exact, and precision, recall and F1 of what changes.

    \b
    A line of FILE: {"episode": "7", "state": ..., "action": "open door", "next": ..., "prediction": ...}
    oneiro score text --pairs predictions.jsonl --train train.jsonl --json scores.json
    """
    from oneiro.tasks.scorer import score

    if train is None:
        warn(NO_TRAIN)
    show(score("text", pairs, train), json)


def page(pairs: Pairs, train: Train = None, json: JsonFile = None) -> None:
    """Score predicted next pages: a line for each element, ids in brackets at its beginning count for nothing.

    \b
    oneiro score page --pairs predictions.jsonl --train train.jsonl
    """
    from oneiro.tasks.scorer import score

    if train is None:
        warn(NO_TRAIN)
    show(score("page", pairs, train), json)


def video(pairs: Pairs, train: Train = None, json: JsonFile = None) -> None:
    """Score predicted frames: PSNR, SSIM, mean absolute and squared error.

    \b
    A line of FILE: {"episode": "7", "frames": "7.npy", "given": 2, "prediction": "7-mine.npy", "actions": [[...]]}
    oneiro score video --pairs predictions.jsonl --train train.jsonl
    """
    from oneiro.tasks.video.scorer import score

    if train is None:
        warn(NO_TRAIN)
    show(score(pairs, train), json)
