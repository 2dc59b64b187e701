"""Does a world keep its promises? `check` plays it and says in plain lines what holds and what does not.

Each check is a function that yields findings; an exception inside one is a finding too, so the rest still runs.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from oneiro.runtime import plugins
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.seeds import generator
from oneiro.worlds.base import ResetNeeded, World, canonical_key
from oneiro.worlds.baselines import beyond_budget, ceiling, oracle_success, play, random_policy, random_success
from oneiro.worlds.registry import WORLDS, config_for, make, register, world_class

LEVELS = 64
"""Levels each statistical check plays."""
SPLIT_LEVELS = 4
"""Times as many levels are drawn to compare the splits."""
MEMBERS = 4  # attempts at each level: enough to see whether chance decides
FEW = 12
"""Levels played by an oracle with which no ceiling is to be compared; it may think long about each move."""
NONSENSE = "☃ no such action ☃"
"""An action no world understands: the idle policy."""


@dataclass(frozen=True)
class CheckFinding:
    """One line of a check's result."""

    status: Literal["ok", "warning", "error"]
    message: str


@dataclass(frozen=True)
class CheckedWorld:
    """The world under test."""

    name: str
    settings: dict[str, Any]

    def make(self) -> World:
        return make(self.name, **self.settings)


def check(name: str, /, **settings: Any) -> list[CheckFinding]:
    """Run every check on a world; the findings in order. Unknown names and settings raise OneiroError, and so do
    settings with which no level can be drawn at all, such as a file that is not there.
    """
    config_for(name, settings)
    candidate = CheckedWorld(name, settings)
    first_levels(candidate)
    files = source_files(world_class(name))
    findings: list[CheckFinding] = []
    for run in CHECKS:
        try:
            findings.extend(run(candidate))
        except Exception as error:
            crash = plugins.describe(error, files)
            findings.append(CheckFinding("error", f"{run.__name__.replace('_', ' ')}: {crash}"))
    return findings


def source_files(kind: type[World]) -> set[str]:
    """Where the code of a world is, and of its parents below `World`: in a crash the line there is what matters."""
    own = [base for base in kind.__mro__ if issubclass(base, World) and base is not World]
    functions = [getattr(member, "fget", member) for base in own for member in vars(base).values()]
    return {function.__code__.co_filename for function in functions if hasattr(function, "__code__")}


def first_levels(candidate: CheckedWorld) -> None:
    """Draw a level of each split: what a person has to mend (OneiroError) is said once and not by every check."""
    try:
        for split in ("train", "eval"):
            candidate.make().reset(seed=0, options={"split": split})
    except OneiroError:
        raise
    except Exception:
        return  # a defect of the world: the checks will find it


def five_tuple(candidate: CheckedWorld) -> Iterator[CheckFinding]:
    """`reset` and `step` return what the interface says, for good and bad actions."""
    world, rng = candidate.make(), generator("check", "five tuple")
    observation, info = world.reset(seed=0)
    wrong = []
    if not isinstance(observation, str):
        wrong.append(f"reset gave a {type(observation).__name__} as observation, not text")
    if not isinstance(info.get("key"), str):
        wrong.append("reset's info has no text under 'key'")
    if not world.instruction.strip():
        wrong.append("the instruction is empty")
    for action in (NONSENSE, "", world.random_action(rng)):
        shown, reward, terminated, truncated, info = world.step(action)
        types = (type(shown) is str, isinstance(reward, float), type(terminated) is bool, type(truncated) is bool)
        if not all(types):
            wrong.append(f"step({action!r}) must return text, float, bool, bool, dict")
        wrong.extend(f"step's info lacks '{key}'" for key in ("valid", "effective", "success") if key not in info)
        if terminated or truncated:
            world.reset(seed=0)
    yield from _verdict(wrong, "reset and step return the five-tuple")


def reset_comes_first(candidate: CheckedWorld) -> Iterator[CheckFinding]:
    """A step before the first `reset` is an error that says so."""
    try:
        candidate.make().step("")
    except ResetNeeded:
        yield CheckFinding("ok", "step before reset is refused")
    except Exception as error:
        advice = "begin `step` with `if self.over`"
        yield CheckFinding("warning", f"step before reset raises {type(error).__name__}, not ResetNeeded: {advice}")
    else:
        yield CheckFinding("warning", "step before reset is accepted: begin `step` with `if self.over`")


def episodes_end(candidate: CheckedWorld) -> Iterator[CheckFinding]:
    """The action budget is kept, and nothing happens after the end."""
    world, rng = candidate.make(), generator("check", "ends")
    wrong = []
    for seed in range(8):
        played = play(world, random_policy, rng, seed=seed, split=None, member=0)
        if played.actions > world.config.max_actions:
            wrong.append(f"seed {seed}: {played.actions} actions, the budget is {world.config.max_actions}")
        before = world.render()
        after, reward, terminated, truncated, _ = world.step(world.random_action(rng))
        if reward or after != before or not (terminated or truncated):
            wrong.append(f"seed {seed}: a step after the end changed or paid something")
    yield from _verdict(wrong, f"episodes end within {world.config.max_actions} actions")


def same_seed_same_episode(candidate: CheckedWorld) -> Iterator[CheckFinding]:
    """Seed and actions decide everything, here and in another process."""
    world = candidate.make()
    first, again = transcript(world), transcript(world)
    if first != again or transcript(candidate.make()) != first:
        yield CheckFinding("error", "the same seed and actions gave two different episodes in one process")
        return
    yield CheckFinding("ok", "same seed, same episode in this process")
    target = WORLDS.get(candidate.name.partition(":")[0])
    if isinstance(target, type):
        target = f"{target.__module__}:{target.__qualname__}"
    command = [sys.executable, "-c", "from oneiro.worlds.check import answer; answer()"]
    question = json.dumps({"name": candidate.name, "settings": candidate.settings, "target": target}, default=str)
    # Another hash seed: anything that leans on the order of a set or on hash() shows itself.
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        done = subprocess.run(command, input=question, capture_output=True, text=True, timeout=120, env=environment)
    except subprocess.TimeoutExpired:
        yield CheckFinding("warning", "another process gave no episode within two minutes")
        return
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        yield CheckFinding("warning", f"another process could not play this world: {last}")
    elif done.stdout.strip() != first:
        yield CheckFinding("error", "the same seed and actions gave another episode in another process")
    else:
        yield CheckFinding("ok", "same seed, same episode in another process")


def members_share_the_level(candidate: CheckedWorld) -> Iterator[CheckFinding]:
    """Members of a group start alike; their transitions differ exactly where the world is stochastic."""
    world, rng = candidate.make(), generator("check", "members")
    starts, endings = set(), []
    for seed in range(16):
        level = {world.reset(seed=seed, options={"member": member})[0] for member in range(MEMBERS)}
        starts.add(len(level))
        world.reset(seed=seed)
        plan = [world.random_action(rng) for _ in range(min(world.config.max_actions, 20))]
        endings.append(len({_follow(world, plan, seed, member) for member in range(MEMBERS)}))
    wrong = [] if starts == {1} else ["members of one group see different first observations"]
    if world.deterministic and max(endings) > 1:
        wrong.append("the world calls itself deterministic, yet members differ after the same actions")
    if not world.deterministic and max(endings) == 1:
        wrong.append("the world is stochastic, yet every member sees the same transitions")
    noise = "the same transitions" if world.deterministic else "noise of their own"
    yield from _verdict(wrong, f"members of a group share the level and have {noise}")


def splits_are_disjoint(candidate: CheckedWorld) -> Iterator[CheckFinding]:
    """No level is in both splits, not even turned or mirrored where the world has symmetries; both have levels."""
    world = candidate.make()
    drawn = {
        split: [world.reset(seed=seed, options={"split": split})[1] for seed in range(SPLIT_LEVELS * LEVELS)]
        for split in ("train", "eval")
    }
    shared = {info["key"] for info in drawn["train"]} & {info["key"] for info in drawn["eval"]}
    if shared:
        yield CheckFinding("error", f"{len(shared)} levels are in both splits")
        return
    forms = {split: [canonical_key(info) for info in infos] for split, infos in drawn.items()}
    alike = set(forms["train"]) & set(forms["eval"])
    if alike:
        yield CheckFinding("error", f"{len(alike)} levels are in both splits up to symmetry")
        return
    distinct = len(set(forms["eval"][:LEVELS]))
    up_to = " up to symmetry" if "canonical" in drawn["eval"][0] else ""
    yield CheckFinding("ok", f"train and eval share no level{up_to} ({distinct} distinct of {LEVELS} drawn)")
    if distinct < LEVELS // 2:
        eval_forms = len(set(forms["eval"]))
        yield CheckFinding(
            "warning", f"only {eval_forms} distinct evaluation levels{up_to} in {SPLIT_LEVELS * LEVELS} seeds"
        )


def scores_make_sense(candidate: CheckedWorld) -> Iterator[CheckFinding]:
    """Idle earns nothing, chance earns little, the oracle earns the stated ceiling."""
    world, rng = candidate.make(), generator("check", "scores")
    idle = [play(world, lambda *_: NONSENSE, rng, seed=seed, split="eval", member=0) for seed in range(8)]
    if any(episode.success or episode.score > 0 for episode in idle):
        yield CheckFinding("error", "doing nothing understandable earns a reward")
    else:
        yield CheckFinding("ok", "idle scores 0")
    chance = random_success(candidate.name, LEVELS, MEMBERS, settings=candidate.settings).mean()
    best = ceiling(candidate.name, LEVELS, settings=candidate.settings)
    status: Literal["ok", "warning"] = "warning" if chance > 0.6 else "ok"
    yield CheckFinding(status, f"random policy succeeds in {chance:.1%} of {LEVELS} x {MEMBERS} episodes")
    if np.isnan(best).any():
        yield CheckFinding("warning", "the world states no ceiling")
        if world.has_oracle:
            few = min(FEW, LEVELS)
            solved = oracle_success(candidate.name, few, settings=candidate.settings).mean()
            status = "warning" if solved < chance else "ok"
            yield CheckFinding(status, f"oracle ({world.oracle_is}) succeeds in {solved:.1%} of {few} episodes")
        return
    top = float(best.mean())
    yield CheckFinding("ok", f"ceiling {top:.1%} over {LEVELS} levels")
    if warning := beyond_budget(best, world.config.max_actions):
        yield CheckFinding("warning", warning)
    if chance > top + 0.02:
        yield CheckFinding("error", f"the random policy ({chance:.1%}) beats the stated ceiling ({top:.1%})")
    if not top:
        return
    world.reset(seed=int(best.argmax()), options={"split": "eval"})
    if not world.has_oracle or world.oracle() is None:
        yield CheckFinding("warning", "the world has no oracle")
        return
    solved = oracle_success(candidate.name, LEVELS, MEMBERS, settings=candidate.settings)
    # Four standard errors of the levels' Bernoulli draws around the exact expectation.
    slack = 4 * float(np.sqrt((best * (1 - best)).sum() / MEMBERS)) / LEVELS + 1e-9
    if abs(solved.mean() - top) > slack:
        yield CheckFinding(
            "error", f"the oracle succeeds in {solved.mean():.1%}, the stated ceiling is {top:.1%} ± {slack:.1%}"
        )
    else:
        yield CheckFinding("ok", f"oracle succeeds in {solved.mean():.1%}: the ceiling")


def views_render(candidate: CheckedWorld) -> Iterator[CheckFinding]:
    """Every view shows text in every state of a few random episodes, and reads back where the world can parse it."""
    world, rng = candidate.make(), generator("check", "views")
    wrong, parsed = set(), set()
    for seed in range(8):
        world.reset(seed=seed)
        for _ in range(min(world.config.max_actions, 20)):
            for view in world.views:
                shown = world.render(view)
                if not shown.strip():
                    wrong.add(f"view '{view}' shows nothing")
                read_state = world.parse(shown, view)
                if read_state is not None:
                    parsed.add(view)
                    if read_state != world.state:
                        wrong.add(f"view '{view}' does not read back as the state it shows")
                elif view in parsed:
                    wrong.add(f"view '{view}' reads back in some states and not in others")
            if world.step(world.random_action(rng))[2]:
                break
    unread = [view for view in world.views if view not in parsed]
    yield from _verdict(sorted(wrong), f"views render: {', '.join(world.views)}")
    if parsed and not wrong:
        tail = f" (not parsed: {', '.join(unread)})" if unread else ""
        yield CheckFinding("ok", f"views read back exactly{tail}")


CHECKS: tuple[Callable[[CheckedWorld], Iterator[CheckFinding]], ...] = (
    five_tuple,
    reset_comes_first,
    episodes_end,
    same_seed_same_episode,
    members_share_the_level,
    splits_are_disjoint,
    views_render,
    scores_make_sense,
)


def transcript(world: World) -> str:
    """A fingerprint of a few random episodes: everything `reset` and `step` returned."""
    digest = hashlib.blake2b(digest_size=16)
    for seed in range(4):
        for member in range(2):
            rng = generator("check", "transcript", seed)
            digest.update(repr(world.reset(seed=seed, options={"member": member, "split": "train"})).encode())
            for _ in range(min(world.config.max_actions, 30)):
                shown, reward, terminated, truncated, info = world.step(world.random_action(rng))
                digest.update(repr((shown, round(reward, 9), terminated, truncated, sorted(info.items()))).encode())
                if terminated or truncated:
                    break
    return digest.hexdigest()


def answer() -> None:
    """What the other process does: read a question from standard input, print the transcript's fingerprint."""
    question = json.load(sys.stdin)
    if question["target"]:
        register(question["name"].partition(":")[0], question["target"])
    sys.stdout.write(transcript(make(question["name"], **question["settings"])))


def _follow(world: World, plan: list[str], seed: int, member: int) -> str:
    world.reset(seed=seed, options={"member": member})
    return repr([world.step(action)[:2] for action in plan])


def _verdict(wrong: list[str], right: str) -> list[CheckFinding]:
    return [CheckFinding("error", line) for line in wrong] or [CheckFinding("ok", right)]


def worst(findings: list[CheckFinding]) -> str:
    """The gravest status among the findings: what a command's exit code follows."""
    order = ("error", "warning", "ok")
    return next((status for status in order if any(finding.status == status for finding in findings)), "ok")
