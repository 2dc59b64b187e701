"""An agent as it comes from disk: a model together with the way it was taught to play."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from oneiro.agents.linear import LinearPolicy, is_linear
from oneiro.agents.policies import ModelPolicy, Policy
from oneiro.agents.prompts import DialogueSettings
from oneiro.models.chat import ChatFormat
from oneiro.models.language import load
from oneiro.models.locate import METADATA
from oneiro.models.metadata import ModelMetadata
from oneiro.runtime.errors import OneiroError, nearest
from oneiro.runtime.files import read_json
from oneiro.sampling.engine import Engine, SamplingSettings
from oneiro.worlds.base import World
from oneiro.worlds.registry import WorldChoice, world_class

RESPONSE_PREFIX = "<think>"
PLAIN = DialogueSettings(world_model=False)
"""How a model is asked that nobody taught to play here: `<think>...</think><answer>...</answer>`, which it knows."""


class AgentMetadata(ModelMetadata):
    """How an agent acts."""

    what = "an agent"
    kind: Literal["agent"] = "agent"
    world: WorldChoice
    dialogue: DialogueSettings = DialogueSettings()
    sampling: SamplingSettings = SamplingSettings(max_tokens=400)
    response_prefix: str = RESPONSE_PREFIX
    copies_state: bool = False
    """A control, whose predictions are not meant to come true: the present state, or a shuffled one."""
    splits: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Named evaluation splits (`oneiro eval agent --split`): settings of the world that draw their tasks."""


@dataclass
class LoadedAgent:
    """Everything an evaluation needs."""

    world: str
    world_settings: dict[str, Any]
    make_world: Callable[[], World]
    dialogue: DialogueSettings
    policy: Policy | None = None
    chat: ChatFormat | None = None
    response_prefix: str = ""
    note: str = ""
    """What a reader of its results must know."""


WEB_SPLITS = {"test-seen": {"test": "seen"}, "test-unseen": {"test": "unseen"}}
"""Test splits of worlds whose evaluation tasks are of templates that training has, or of held-out ones."""


def split_settings(split: str | None, world: str, taught: AgentMetadata | None) -> dict[str, Any]:
    """Settings of the world that draw the tasks of a test split: as the model's own run named it, or as the world
    does.
    """
    if split is None:
        return {}
    known = dict(taught.splits) if taught is not None else {}
    # Worlds that draw test tasks from templates have this setting; others have one evaluation split.
    if "test" in world_class(world).Config.model_fields:
        known = {**WEB_SPLITS, **known}
    if split not in known:
        raise OneiroError(f"'{world}' has no split '{split}'{nearest(split, known)}")
    return known[split]


def load_agent(
    model: str | None, world: str, settings: dict[str, Any], max_batch_size: int = 256, split: str | None = None
) -> LoadedAgent:
    """The model in `world` with `settings`, and over them its own metadata; `split` is one of `split_settings`.

    Where it was taught in that world, it plays there with the settings it was taught with; in another variant of that
    world it still sees states as it was taught to (`WorldChoice.in_view_of`), all else being the variant's.
    """
    if model is None:
        settings = split_settings(split, world, None) | settings
    choice = WorldChoice(name=world, **settings)
    if model is None:
        return LoadedAgent(choice.name, choice.settings, choice.maker(), PLAIN)
    if is_linear(model):
        return _linear(Path(model).expanduser(), world, settings, split)
    language = load(model)
    metadata, note = AgentMetadata(world=choice, dialogue=PLAIN), ""
    taught = AgentMetadata.read(language, model)
    # What the caller says counts over what the split says.
    settings = split_settings(split, world, taught) | settings
    choice = WorldChoice(name=world, **settings)
    if taught is not None:
        if taught.world.name == world:
            # A size or view that the agent never saw would measure the change of world and not the agent.
            choice = WorldChoice(name=world, **{**taught.world.settings, **settings})
        else:
            note = f"the model was taught in {taught.world.name}, not here"
            if taught.world.name.partition(":")[0] == world.partition(":")[0]:
                choice = choice.in_view_of(taught.world)
        metadata = taught
    return LoadedAgent(
        choice.name,
        choice.settings,
        choice.maker(),
        metadata.dialogue,
        ModelPolicy(Engine(language, max_batch_size), metadata.sampling),
        ChatFormat(language.tokenizer),
        metadata.response_prefix,
        note,
    )


def _linear(folder: Path, world: str, settings: dict[str, Any], split: str | None) -> LoadedAgent:
    """An agent without a language model, in the world that its metadata names."""
    taught = AgentMetadata.model_validate(read_json(folder / METADATA))
    if taught.world.name.partition(":")[0] != world.partition(":")[0]:
        raise OneiroError(f"the agent at {folder} acts in '{taught.world.name}' only, not in '{world}'")
    chosen = {**taught.world.settings, **split_settings(split, world, taught), **settings}
    choice = WorldChoice(name=world, **chosen)
    policy = LinearPolicy.load(folder, taught.sampling.temperature)
    return LoadedAgent(choice.name, choice.settings, choice.maker(), taught.dialogue, policy)
