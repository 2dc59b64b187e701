"""eval video, eval policy and play robot: how good predicted frames are, how policies fare inside a learned model of
video beside the true simulator, and how it feels to move the arm oneself.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oneiro.cli.show import JsonFile, progress, show, warn
from oneiro.runtime.errors import OneiroError, nearest
from oneiro.runtime.files import write_json, write_text

if TYPE_CHECKING:
    pass

NETWORKS = ("alex", "vgg")
FRAMES = {"segments": (200, 24), "runs": (3, 1), "lpips": ("alex,vgg", "alex")}
ROLLOUTS = {"starts": (30, 6)}
"""Option -> its default with a GPU, and without one, where the first would take hours."""


def defaults(options: Mapping[str, tuple[Any, Any]], given: Mapping[str, Any], gpu: bool) -> tuple[dict[str, Any], str]:
    """The options with what was left out filled in, and what to say of it."""
    usual = {name: pair[0 if gpu else 1] for name, pair in options.items()}
    left = [name for name in options if given[name] is None]
    quick = ", ".join(f"--{name} {usual[name]}" for name in left)
    full = " ".join(f"--{name} {options[name][0]}" for name in left)
    notice = f"no GPU: {quick}; the full measurement is {full}, in hours" if left and not gpu else ""
    return {name: usual[name] if given[name] is None else given[name] for name in options}, notice


def fill_options(options: Mapping[str, tuple[Any, Any]], given: Mapping[str, Any]) -> dict[str, Any]:
    """The same for this machine, said aloud."""
    import torch

    values, notice = defaults(options, given, torch.cuda.is_available())
    if notice:
        warn(notice)
    return values


def video(
    model: Annotated[str, typer.Option(metavar="DIR", help="A video run, or a model folder with its tokenizer.")],
    data: Annotated[Path, typer.Option(metavar="DIR", help="A folder of episodes (see oneiro data).")],
    split: Annotated[
        str, typer.Option(metavar="test|all", help="The folder's test episodes, or all: then none may be trained on.")
    ] = "test",
    segments: Annotated[
        int | None, typer.Option(min=1, help="Segments, evenly over the episodes. Default: 200; without a GPU 24.")
    ] = None,
    runs: Annotated[
        int | None, typer.Option(min=1, help="Futures sampled for each segment. Default: 3; without a GPU 1.")
    ] = None,
    lpips: Annotated[
        str | None,
        typer.Option(metavar="alex,vgg|none", help="Whose eyes judge likeness. Default: both; without a GPU alex."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the sampling.")] = 0,
    json: JsonFile = None,
) -> None:
    """Compare predicted frames with recorded ones, beside copying and the tokenizer's ceiling, with 95 % intervals.

    Of a run, the model before RL and the one after it are both measured.

    \b
    oneiro eval video --model runs/video --data runs/video/data --json frames.json
    oneiro eval video --model runs/video/checkpoints/rl --data other-data --split all --lpips alex
    """
    from oneiro.tasks.video.evaluation import evaluate_video, open_models

    options = fill_options(FRAMES, {"segments": segments, "runs": runs, "lpips": lpips})
    networks = [] if options["lpips"] == "none" else [name.strip() for name in options["lpips"].split(",")]
    for name in networks:
        if name not in NETWORKS:
            raise OneiroError(f"LPIPS knows no network called '{name}'{nearest(name, NETWORKS)}")
    if split not in ("test", "all"):
        raise OneiroError(f"no split called '{split}'; choose test or all")
    models = open_models(model)
    count, futures = options["segments"], options["runs"]
    with progress("segments", len(models) * count) as bar:
        tables = evaluate_video(
            models, data, "all" if split == "all" else "test", count, futures, networks, seed, bar.advance, warn
        )
    show(tables, json)


def policy(
    model: Annotated[str, typer.Option(metavar="DIR", help="A video run, or a model folder with its tokenizer.")],
    policies: Annotated[
        str, typer.Option(metavar="NAME,...", help="Which policies; 'all': every one there is.")
    ] = "all",
    task: Annotated[str, typer.Option(metavar="drawer-open|drawer-close", help="What they try.")] = "drawer-open",
    starts: Annotated[
        int | None, typer.Option(min=1, help="Unseen starts of each policy. Default: 30; without a GPU 6.")
    ] = None,
    horizon: Annotated[int, typer.Option(min=1, help="Actions of a rollout; its last frame decides success.")] = 32,
    stage: Annotated[
        str | None, typer.Option(metavar="pretrain|rl", help="Of a run: only the model after this stage.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Episodes (oneiro data robot) for the clone and the classifier; else made."),
    ] = None,
    policy_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the clone and the classifier are kept, or found.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A setting of the clone and the classifier; may be repeated."),
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Verdicts of a person (JSON lines) in the classifier's place.")
    ] = None,
    keep: Annotated[Path | None, typer.Option(metavar="DIR", help="Keep every rollout as an episode file.")] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="The scatter plot, as SVG.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of starts, policies and models.")] = 0,
    json: JsonFile = None,
) -> None:
    """Let policies act inside a model, and compare their success with the true simulator's.

    Policies are clones of the scripted expert that see frames, with several perturbations: expert, noisy, very-noisy,
    biased, half-random, random; and the clone early in its training: begin, early. The first time, the clone and the
    classifier of success are trained, which takes some minutes.

    \b
    oneiro eval policy --model runs/video --policies expert,noisy,random --task drawer-open --json policies.json
    """
    from oneiro.recipe import assignments
    from oneiro.systems.policy_eval import agreement, pipeline
    from oneiro.systems.policy_eval.policies import PolicyTrainingSettings

    training = PolicyTrainingSettings(**assignments(settings or ()))
    starts = int(fill_options(ROLLOUTS, {"starts": starts})["starts"])
    compared, tables = pipeline.run(
        model,
        pipeline.Real2SimSettings(task=task, starts=starts, horizon=horizon, seed=seed),
        policies,
        training,
        stage=stage,
        data=data,
        folder=policy_dir,
        labels=labels,
        keep=keep,
        progress=progress,
        say=warn,
    )
    show(tables, None)
    if plot is not None:
        write_text(plot, agreement.plot(compared, task))
    if json is not None:
        write_json(json, {"tables": [table.data() for table in tables], "outcomes": compared.data()})


def robot_policy(
    model: Annotated[str, typer.Option(metavar="DIR", help="A video run or model folder, of RT-1's actions.")],
    data: Annotated[Path, typer.Option(metavar="DIR", help="Episodes with instructions (oneiro data rlds).")],
    rt1: Annotated[list[str], typer.Option(metavar="NAME=DIR", help="A checkpoint of RT-1; may be repeated.")],
    encoder: Annotated[Path, typer.Option(metavar="DIR", help="The Universal Sentence Encoder (Large, 5).")],
    instruction: Annotated[str, typer.Option(help="What the policies are told; starts say the same.")] = (
        "open middle drawer"
    ),
    starts: Annotated[int, typer.Option(min=1, help="Test episodes that are started from.")] = 30,
    horizon: Annotated[int, typer.Option(min=1, help="Actions of a rollout, at most.")] = 112,
    labels: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Verdicts of a person on the last frames (JSON lines).")
    ] = None,
    real: Annotated[
        list[str] | None, typer.Option(metavar="NAME=RATE", help="A policy's success on the robot, from 0 to 1.")
    ] = None,
    keep: Annotated[Path | None, typer.Option(metavar="DIR", help="Keep every rollout as an episode file.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of starts and models.")] = 0,
    json: JsonFile = None,
) -> None:
    """Let RT-1 policies act inside a model of the robot's video, from first frames of test episodes.

    No simulator knows what is true here: people look at the last frames (--keep, then --labels).

    \b
    oneiro eval rt1 --model runs/rt1 --data data/rt1 --rt1 converged=rt_1_tf_trained_for_000400120 \\
      --rt1 begin=rt_1_tf_trained_for_000001120 --encoder universal-sentence-encoder-large_5 --keep rollouts
    """
    from oneiro.systems.policy_eval import recorded_starts as robot

    settings = robot.RecordedStartSettings(instruction=instruction, starts=starts, horizon=horizon, seed=seed)
    places, rates = robot.named_values(rt1, "DIR"), robot.real_rates(real or [])
    tables = robot.run(
        model, data, places, encoder, settings, rates, labels=labels, keep=keep, progress=progress, say=warn
    )
    show(tables, json)


def drive(model: str, data: Path | None, episode: int, out: Path, seed: int) -> None:
    """What `oneiro play robot --model` does: keys in, frames out."""
    import sys

    from oneiro.tasks.video.teleop import STILL, blocks, keys_of, open_teleop

    driven = open_teleop(model, data, episode, out, seed)
    moves = ", ".join(f"{less} and {more}" for less, more in driven.keys)
    named = f"1- and 1+ to {driven.entries}- and {driven.entries}+ push any of the {driven.entries} entries"
    typer.echo(f"The model answers keys ({moves} move; {named}; {STILL} waits; q ends); several in a line, in order.")
    while True:
        if sys.stdout.isatty():
            typer.echo(blocks(driven.frame))
        try:
            line = input(f"frame {len(driven.shown)} > ").strip()
        except EOFError:
            line = "q"
        for key in keys_of(line):
            if key == "q":
                typer.echo(f"{driven.finish()} shows {len(driven.shown)} frames")
                return
            if not driven.press(key):
                typer.echo(f"'{key}' means nothing here")
