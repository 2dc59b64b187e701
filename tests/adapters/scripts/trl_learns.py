"""GRPO of TRL on a bandit world: a tiny model that knows the form of a reply learns which names pay."""

from __future__ import annotations

import json
from pathlib import Path

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from oneiro.adapters.trl import Rollouts
from oneiro.agents.prompts import DialogueSettings
from oneiro.agents.reply import TAG_TOKENS
from oneiro.learning import sft
from oneiro.learning.settings import LearnerSettings, OptimiserSettings, SftSettings
from oneiro.models.chat import ChatFormat
from oneiro.models.language import ModelSettings, create_tiny
from oneiro.sampling.settings import SamplingSettings
from oneiro.worlds.puzzle.bandit import RISKY, STEADY

LEVELS, STEPS = 8, 10

rollouts = Rollouts(
    "bandit",
    DialogueSettings(brief=True, think=False, world_model=False, max_turns=1, actions_per_turn=1),
    SamplingSettings(max_tokens=6),
    low=0.0,
    chance=1.0,
)
rows = rollouts.dataset(LEVELS)
names = [*STEADY, *RISKY]
texts = [f"Arms: {a} and {b}. You pulled {a}; it paid 0.1" for a in names for b in names[:4]]
language = create_tiny(ModelSettings(layers=2, width=64, heads=2, mlp=128, vocabulary=700), texts, 0, TAG_TOKENS)
chat = ChatFormat(language.tokenizer)
lessons = [
    chat.answer_row(chat.opening(row["prompt"][0]["content"]), f"<answer>{name}</answer>")
    for row in rows
    for name in row["prompt"][0]["content"].removeprefix("Arms: ").removesuffix(".").split(" and ")
]
settings = SftSettings(batch=16, epochs=100, learner=LearnerSettings(optimiser=OptimiserSettings(lr=3e-3)))
sft.train(language, lessons, [], settings, Path("sft"), 0, lambda *_: None)
language.save("model")

trainer = GRPOTrainer(
    "model",
    reward_funcs=rollouts.reward,
    args=GRPOConfig(
        "out",
        max_steps=STEPS,
        per_device_train_batch_size=64,
        num_generations=8,
        learning_rate=1e-3,
        logging_steps=1,
        report_to="none",
        save_strategy="steps",
        save_steps=STEPS,
        use_cpu=True,
        bf16=False,
        disable_tqdm=True,
    ),
    train_dataset=Dataset.from_list(rows),
    rollout_func=rollouts,
)
trainer.train()
rewards = [entry["reward"] for entry in trainer.state.log_history if "reward" in entry]
ratios = [entry.get("clip_ratio/region_mean", 0.0) for entry in trainer.state.log_history if "reward" in entry]
print(
    "RESULT",
    json.dumps({"rewards": rewards, "clipped": max(ratios), "saved": Path(f"out/checkpoint-{STEPS}").is_dir()}),
)
