"""eval: how good an agent or a model is, beside chance and ceiling."""

from __future__ import annotations

from typing import Annotated

import typer

from oneiro.cli import textgame, video
from oneiro.cli.show import JsonFile, show


def offer(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="Measure something trained, beside chance and ceiling.")
    group.command()(agent)
    group.command("text-game")(textgame.text_game)
    group.command("video")(video.video)
    group.command("policy")(video.policy)
    app.add_typer(group, name="eval")


def agent(
    world: Annotated[str, typer.Option(help="The world to play in.")],
    model: Annotated[
        str | None, typer.Option(metavar="DIR|NAME", help="A checkpoint, a model folder or a model's name.")
    ] = None,
    policy: Annotated[str | None, typer.Option(metavar="random|oracle", help="A scripted player.")] = None,
    levels: Annotated[int, typer.Option(min=1, help="Unseen levels to play.")] = 256,
    samples: Annotated[int, typer.Option(min=1, help="Attempts at each level.")] = 8,
    settings: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A setting of the world; may be repeated.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the agent's sampling.")] = 0,
    json: JsonFile = None,
) -> None:
    """Let an agent play unseen levels: success, pass@k and how true its inner pictures are, with 95 % intervals.

    \b
    oneiro eval agent --world frozen-lake --model runs/demo/checkpoints/rl-spa
    oneiro eval agent --world frozen-lake --policy oracle --levels 64 --settings size=6
    """
    from oneiro.errors import OneiroError, nearest
    from oneiro.recipe import assignments

    if policy is not None and policy not in ("random", "oracle"):
        raise OneiroError(f"no policy called '{policy}'{nearest(policy, ('random', 'oracle'))}")
    if (model is None) == (policy is None):
        raise OneiroError("say who plays: either --model DIR_OR_NAME or --policy random|oracle")
    from oneiro.agents.evaluate import evaluate_agent

    show([evaluate_agent(world, model, policy, levels, samples, assignments(settings or ()), seed)], json)
