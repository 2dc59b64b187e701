"""The papers as pipelines: each composes the rooms below it and is started by `oneiro.run(recipe)`.

A system is a `Recipe` subclass, named in `SYSTEMS` or offered by another package in the entry-point group
`oneiro.systems`, and a function `run(recipe, run)`: in the module of the class, or where its `pipeline` says. The
recipe is read and checked before the pipeline is imported, which may bring torch.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from oneiro.recipe import Recipe, chosen_presets, load_explained
from oneiro.rundir import track
from oneiro.rundir.records import first_difference, read_info
from oneiro.rundir.run import Run, holds_run
from oneiro.runtime import distributed, interrupt, plugins, threads
from oneiro.runtime.errors import OneiroError, nearest

SYSTEMS: dict[str, str] = {
    "spa": "oneiro.systems.spa.recipe:SpaRecipe",
    "rlvr/text-game": "oneiro.tasks.textgame.recipe:TextGameRecipe",
    "rlvr/web-page": "oneiro.tasks.webpage.recipe:WebPageRecipe",
    "rlvr/physics": "oneiro.tasks.rules.recipe:PhysicsRecipe",
    "rlvr/rules": "oneiro.tasks.rules.recipe:RulebookRecipe",
    "rlvr/written-rules": "oneiro.tasks.rules.recipe:WrittenRecipe",
    "rlvr/video": "oneiro.tasks.video.recipe:VideoRecipe",
    "plan/frozen-lake": "oneiro.systems.plan.recipe:PlanLakeRecipe",
    "plan/text-game": "oneiro.systems.plan.recipe:PlanTextGameRecipe",
    "plan/physics": "oneiro.systems.plan.recipe:PlanPhysicsRecipe",
    "plan/web": "oneiro.systems.plan.recipe:PlanWebRecipe",
    "dyna/frozen-lake": "oneiro.systems.dyna.recipe:DynaLakeRecipe",
    "dyna/web": "oneiro.systems.dyna.recipe:DynaWebRecipe",
    "webrl": "oneiro.systems.webrl.recipe:WebrlRecipe",
}
"""System name -> its recipe class, `module:Class`."""
RENAMED = {"rlvr": "rlvr/text-game", "video": "rlvr/video"}
"""Systems of earlier recipes -> their present names, for the message."""


def recipe_class(system: str) -> type[Recipe]:
    if system in RENAMED:
        raise OneiroError(f"the system '{system}' is now called '{RENAMED[system]}' (key 'system' of the recipe)")
    kind = plugins.resolve(_target(system), f"system '{system}'")
    if not (isinstance(kind, type) and issubclass(kind, Recipe)):
        raise OneiroError(f"system '{system}': {_target(system)} is not a Recipe class")
    return kind


def check(recipe: Recipe, ask_hub: bool = False) -> None:
    """What can be seen before any work: trackers, models, views and folders that a recipe names are there.

    Whether the hub has a model is asked only where it is about to be loaded: a dry run needs no network.
    """
    from oneiro.models.locate import require_model

    track.require(recipe.track)
    for model in recipe.weights:
        require_model(model, ask_hub)
    recipe.check_places()


def pipeline(system: str) -> Callable[[Recipe, Run], None]:
    """The function that carries a system's recipe out inside a run directory."""
    recipe = recipe_class(system)
    place = f"{recipe.pipeline or recipe.__module__}:run"
    run: Callable[[Recipe, Run], None] = plugins.resolve(place, f"system '{system}'")
    return run


def _target(system: str) -> str:
    known = plugins.with_offered("systems", SYSTEMS)
    if system not in known:
        raise OneiroError(f"no system called '{system}' (key 'system' of the recipe){nearest(system, known)}")
    return known[system]


@distributed.setup()
def run(recipe: Recipe | str | Path, out: str | Path | None = None, overrides: Sequence[str] = ()) -> Run:
    """Carry out a recipe: a `Recipe`, the name or path of one, or a run directory to go on with.

    The run lives in `out`. Without `out` it takes up the unfinished run of this very recipe under `runs/`, or starts
    `runs/NAME-N`. Stages that are done are skipped, so calling it again with the same arguments resumes. Under
    torchrun every rank calls it and does its share of playing, sampling and learning; the main process writes.
    """
    if isinstance(recipe, Recipe):
        name, chosen, why = recipe.system, recipe, ""
    elif holds_run(recipe):
        name, (chosen, why) = str(recipe), load_explained(f"{recipe}/recipe.yaml", overrides)
        elsewhere = out is not None and Path(out).resolve() != Path(recipe).resolve()
        if elsewhere or (difference := first_difference(recipe, chosen)):
            why = f"--out {out} is another place" if elsewhere else difference
            raise OneiroError(
                f"{recipe} is a run and keeps its recipe ({why}); for a new one: oneiro run {recipe}/recipe.yaml"
            )
        out = recipe
    else:
        name, (chosen, why) = str(recipe), load_explained(str(recipe), overrides)
    if not holds_run(name):  # a run looked when it began, and may have all it needs by now
        distributed.on_main_process(lambda: check(chosen, ask_hub=True))
    from oneiro.report import page  # drawing is not needed to say that a recipe has a mistake

    place = distributed.on_main_process(lambda: out or _default_out(name, chosen))
    with interrupt.handle(), _going_on(), Run.open(place, chosen) as opened:
        if opened.info["status"] == "done":
            opened.say(f"{opened.path} is finished; its report is written again")
        else:
            time = f", {chosen.takes}" if chosen.takes else ""
            opened.say(f"in {opened.path}{time}; Ctrl-C stops it, the same command goes on")
        if not isinstance(recipe, Recipe) and (command := _without_smoke(name, overrides)):
            opened.remember("real_command", command)
        if why:
            opened.say(f"model {why}")
        with interrupt.postpone():  # this brings torch, which aborts where a signal meets its loading
            work = pipeline(chosen.system)
        _use_threads(chosen, opened)
        work(chosen, opened)
        if not distributed.is_main_process():
            return opened
        if chosen.profile:
            page.add_times(opened)
        for table in page.tables(opened.path):
            opened.say(table)
        opened.finish()
        opened.say(f"{page.write([opened.path])} shows the run")
        if command := opened.info.get("real_command"):
            opened.say(f"a smoke run only tests that everything works, its numbers mean nothing; a result: {command}")
        elif chosen.next:
            opened.say("\n".join(["next:", *(f"  {line.replace('{run}', str(opened.path))}" for line in chosen.next)]))
    return opened


def _without_smoke(name: str, overrides: Sequence[str]) -> str | None:
    """The command that a run of the preset `smoke` is a test of; None for other runs."""
    presets = chosen_presets(overrides)
    if "smoke" not in presets:
        return None
    kept = [word for word in overrides if not word.startswith("preset=")]
    others = ",".join(preset for preset in presets if preset != "smoke")
    return shlex.join(["oneiro", "run", name, *([f"preset={others}"] if others else []), *kept])


@contextmanager
def _going_on() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise interrupt.Stopped("stopped; the same command resumes") from None


def _use_threads(recipe: Recipe, run: Run) -> None:
    """As many as the run began with: another count would change the last digits of a resumed run."""
    torch = sys.modules.get("torch")
    if torch is None:  # a system that computes without it
        return
    # A run of an earlier version began with torch's own count.
    chosen = torch.get_num_threads() if run.info["stages"] else recipe.threads or threads.choose(recipe.parameters)
    count = run.remember("threads", chosen)
    torch.set_num_threads(count)
    run.note(f"{count} threads on {threads.cores()} cores")


def _default_out(name: str, recipe: Recipe) -> Path:
    """`runs/spa-frozen-lake-N`: the unfinished run of this very recipe, else the first free number."""
    number = 1
    while (path := Path("runs") / f"{stem_of(name)}-{number}").exists():
        if _is_unfinished(path) and not first_difference(path, recipe):
            return path
        number += 1
    return path


def stem_of(name: str) -> str:
    """A recipe's name as that of a folder."""
    return name.removesuffix(".yaml").removesuffix(".yml").strip("./").replace("/", "-")


def _is_unfinished(path: Path) -> bool:
    return holds_run(path) and (path / "run.json").exists() and read_info(path)["status"] != "done"
