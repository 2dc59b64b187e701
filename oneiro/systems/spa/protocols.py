"""The published protocols: SPA's, RAGEN's of 2025 and of 2026, section by section as their papers and code have them.

A recipe takes one whole with `protocol: ragen2`, for the sections it leaves out or sets to null; what it writes lies
over the protocol's. The presets `spa`, `ragen` and `ragen2` of the shipped recipes do that.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from oneiro.recipe import Plain, merge

_BUDGET = 8192
"""Padded tokens in a micro-batch: changes no result, fits models of a few billion parameters on one large GPU."""

_TURNS: Plain = {"context": "full", "think": True, "show_reward": True, "max_turns": 5, "format_penalty": 0.1}

_PPO: Plain = {
    "algorithm": {"name": "ppo", "gamma": 1.0, "lam": 1.0, "bi_level": False},
    "epochs": 1,
    "minibatches": 1,
    "learner": {
        "token_budget": _BUDGET,
        "optimiser": {"lr": 1e-6, "betas": [0.9, 0.999], "weight_decay": 0.01, "clip": 1.0, "schedule": "constant"},
        "loss": {
            "clip_low": 0.2,
            "clip_high": 0.28,
            "dual_clip": 3.0,
            "kl": 0.0,
            "entropy": 0.001,
            "value_clip": 0.5,
            "aggregate": "token-mean",
        },
    },
    "critic": {"lr": 1e-5, "betas": [0.9, 0.999], "weight_decay": 0.01, "clip": 1.0, "schedule": "constant"},
}

PROTOCOLS: dict[str, Plain] = {
    "own": {},
    "spa": {
        "dialogue": {**_TURNS, "actions_per_turn": 5, "max_words": 100},
        "sampling": {"max_tokens": 400, "temperature": 1.0},
        "self_play": {"policy": "self", "batches": 5, "levels": 32, "group_size": 8, "held_out": 0.2},
        "sft": {
            "batch": 16,
            "epochs": 5,
            "learner": {
                "token_budget": _BUDGET,
                "optimiser": {
                    "lr": 1e-4,
                    "betas": [0.9, 0.95],
                    "weight_decay": 0.01,
                    "clip": 1.0,
                    "schedule": "cosine",
                    "warmup": 0.1,
                },
            },
        },
        "rollout": {"prompts_per_step": 32, "group_size": 8},
        # A quarter of 256 trajectories are kept: one update of 64.
        "rl": {**_PPO, "steps": 1000, "filter": {"name": "fraction", "keep": 0.25}},
        "evaluation": {"levels": 128, "samples": 8, "temperature": 1.0, "every": 10},
    },
    "ragen": {
        "dialogue": {**_TURNS, "actions_per_turn": 5, "max_words": 100},
        "sampling": {"max_tokens": 400, "temperature": 1.0},
        "rollout": {"prompts_per_step": 8, "group_size": 16},
        "rl": {**_PPO, "steps": 200, "filter": {"name": "fraction", "keep": 0.25}},
        "evaluation": {"levels": 256, "samples": 1, "temperature": 0.5, "every": 10},
    },
    "ragen2": {
        "dialogue": {**_TURNS, "actions_per_turn": 2, "max_words": 120},
        "sampling": {"max_tokens": 400, "temperature": 1.0},
        "rollout": {"prompts_per_step": 8, "group_size": 16},
        # All 128 trajectories, 32 to an update. Its paper recommends rl.filter={name: top-p, keep: 0.9}.
        "rl": {**_PPO, "steps": 200, "filter": {"name": "none"}, "minibatches": 4},
        "evaluation": {"levels": 512, "samples": 1, "temperature": 0.5, "every": 10},
    },
}
"""Protocol -> section -> settings."""


def with_protocol(data: Plain, known: Collection[str]) -> Plain:
    """Recipe data with the sections of its protocol under what it says itself; null `known` ones count as left out."""
    sections: dict[str, Any] = PROTOCOLS.get(str(data.get("protocol") or "own"), {})
    data = {key: value for key, value in data.items() if value is not None or key not in known}
    return {**data, **{name: merge(section, data.get(name, {})) for name, section in sections.items()}}
