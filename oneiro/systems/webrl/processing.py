"""What WebRL's processing and task scripts do, on files: labels by evidence, ranks by an actor, tasks from failures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from oneiro.episode import Episode
from oneiro.runtime import seeds
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.server import Server, ServerConfig
from oneiro.systems.webrl import task_files
from oneiro.systems.webrl.curriculum.growth import Curriculum, CurriculumSettings
from oneiro.systems.webrl.curriculum.operators import BACKTICKED, generation_prompt, match_templates, resolve
from oneiro.systems.webrl.formats import Plain, Trace
from oneiro.systems.webrl.outcome import Rules
from oneiro_web.env import WebConfig, contents_in
from oneiro_web.tasks import Task
from oneiro_web.templates.registry import TEMPLATES


def rule_labels(traces: Sequence[Trace]) -> list[bool]:
    """Labels by visible evidence, for traces whose scores mean nothing."""
    episodes = []
    for trace in traces:
        # A trace does not say which actions the browser understood.
        turns = [
            {"state": step.html, "reply": f"<answer>{step.response}</answer>", "actions": [{"valid": True}]}
            for step in trace.steps
        ]
        task = {"id": trace.trace_id, "intent": trace.target}
        episodes.append(Episode([], info={"task": task, "turns": turns}))
    return [score >= 0.5 for score in Rules().scores(episodes)]


def ranker(model: str) -> Callable[[Plain], float]:
    """The geometric-mean probability of a processed step's action under a model, without an end token."""
    from oneiro.episode import Row, given
    from oneiro.learning.batch import Example
    from oneiro.learning.learner import Learner
    from oneiro.learning.settings import LearnerSettings
    from oneiro.models.language import load
    from oneiro.systems.webrl.episodes import confidence

    language = load(model)
    learner = Learner(language.backbone, LearnerSettings(), 1)
    most = language.backbone.most_positions

    def rank(step: Plain) -> float:
        prompt, action = language.encode(step["observation"]), language.encode(step["action"])
        if most is not None and len(prompt) + len(action) > most:
            prompt = prompt[len(prompt) + len(action) - most :]  # the present page and the header stand at the end
        if not prompt or not action:
            return 0.0
        example = Example.of(Row([given(prompt), given(action, "assistant", policy=1.0)]))
        scores, _ = learner.logprobs([example])
        return confidence(scores[0][example.weights["policy"] != 0])

    return rank


@dataclass(frozen=True)
class Grown:
    """Task configs, and what became of the failures they grew from."""

    configs: list[Plain]
    graded: int
    """Configs with graders of their own."""
    matched: int
    """Failures that fit a template."""
    unknown: list[str]
    """Those that do not."""


def grow(
    failures: Sequence[tuple[str, str]], count: int, server: ServerConfig | None, unmatched: bool, seed: int
) -> Grown:
    """New tasks from failed ones: by operators on the templates that they fit and, with a server, as it proposes."""
    rng = seeds.generator(seed, "generate")
    known: list[Task] = []
    unknown: list[str] = []
    for site, text in failures:
        here = [t for t in TEMPLATES.values() if t.site == site and not t.held_out]
        task = resolve(text, here, contents_in("train"), rng)
        if task is None and (fits := match_templates(text, here)):
            # The words are of no content of ours: any task of the template stands for it.
            task = Curriculum(CurriculumSettings(tasks=1), [fits[0][0]], WebConfig(), seed=seed).initial(1)[0]
        if task is None:
            unknown.append(text)
        else:
            known.append(task)
    proposals: list[Plain] = []
    if server is not None and unmatched:
        proposals = _propose(failures, server)[: count // 2]
    if not known and not proposals:
        raise OneiroError(
            "none of the failed tasks fits a template; with --server URL and --unmatched a model proposes"
        )
    tasks: list[Task] = []
    if known:
        sites = {task.sites[0] for task in known}
        templates = [t for t in TEMPLATES.values() if t.site in sites and not t.held_out]
        settings = CurriculumSettings(tasks=count - len(proposals), generator=server)
        curriculum = Curriculum(settings, templates, WebConfig(), seed=seed)
        curriculum.note(0, known, [False] * len(known))
        tasks = curriculum.grow(1).tasks
    configs = [task_files.own_config(task) for task in tasks]
    return Grown(configs + proposals, len(tasks), len(known), unknown)


def _propose(failures: Sequence[tuple[str, str]], server: ServerConfig) -> list[Plain]:
    """A model's proposals as the release keeps them: texts with a dummy grader, each once."""
    sites = sorted({site for site, _ in failures})
    prompts = []
    for site in sites:
        shown = [_as_task(site, text) for where, text in failures if where == site][:10]
        prompts.append([{"role": "user", "content": generation_prompt(site, shown)}])
    configs: dict[str, Plain] = {}
    for site, (reply,) in zip(sites, Server(server).chat(prompts), strict=True):
        for text in BACKTICKED.findall(reply.text or ""):
            configs.setdefault(text.lower(), task_files.task_config(text, site, len(configs)))
    return list(configs.values())


def _as_task(site: str, text: str) -> Any:
    return Task.model_validate(task_files.task_config(text, site, 0))
