"""Sampling shared by the ranks of a team: each decodes some of the prompts with the random numbers they would have had.

Only rank 0 plays; what it asks the engine for is shared, whoever asks: a rollout, an evaluation, self-play. Samples do
not depend on how many ranks there are.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from oneiro.episode import Tokens
from oneiro.models import mirror
from oneiro.models.language import LanguageModel
from oneiro.runtime.team import Team
from oneiro.sampling.settings import SamplingSettings

if TYPE_CHECKING:
    from oneiro.sampling.engine import Engine, Sample

_engines: weakref.WeakKeyDictionary[Engine, int] = weakref.WeakKeyDictionary()
"""The number that other ranks know an engine by."""


def generate(
    team: Team,
    engine: Engine,
    prompts: Sequence[Tokens | Sequence[int]],
    n: int,
    sampling: SamplingSettings,
    forced: Sequence[Tokens | None] | None,
    seed: int | Sequence[int],
) -> list[list[Sample]]:
    """`Engine.generate` on every rank of a team; called by rank 0."""
    body = mirror.number_of(team, engine.language.backbone)
    number = _engines.get(engine)
    if number is None:
        number = _engines[engine] = team.number()
        weakref.finalize(engine, team.drop, number)
        language = engine.language
        team.kept[number] = weakref.proxy(engine)
        team.together(
            _open, number, body, language.name, language.tokenizer, language.end_tokens, engine.max_batch_size
        )
    parts = portions([np.asarray(prompt) for prompt in prompts], team.size)
    gathered = team.each(_generate, parts, number, prompts, n, sampling, forced, seed)
    found: dict[int, list[Sample]] = {}
    for part, samples in zip(parts, gathered, strict=True):
        found.update(zip(part, samples, strict=True))
    return [found[i] for i in range(len(prompts))]


def portions(prompts: Sequence[np.ndarray], ranks: int) -> list[list[int]]:
    """Which prompts each rank takes: as many each, and equal ones together, so that they are computed once."""
    alike: dict[bytes, list[int]] = {}
    for i, prompt in enumerate(prompts):
        alike.setdefault(prompt.astype(np.int64).tobytes(), []).append(i)
    order = [i for same in alike.values() for i in same]
    return [sorted(part.tolist()) for part in np.array_split(np.array(order, int), ranks)]


def _open(team: Team, number: int, body: int, name: str, tokenizer: Any, ends: list[int], max_batch_size: int) -> None:
    if team.rank:
        from oneiro.sampling.engine import Engine

        model = SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=ends))
        team.kept[number] = Engine(LanguageModel(name, model, tokenizer, team.kept[body]), max_batch_size)


def _generate(team: Team, own: list[int], number: int, *asked: Any) -> list[list[list[Sample]]]:
    engine: Engine = team.kept[number]
    return team.gather(engine.generate_some(own, *asked) if own else [])
