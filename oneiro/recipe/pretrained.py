"""Settings for any pretrained model, from those that a recipe has for one of them.

Recipes are tuned for `tiny` and for SmolLM2-135M. Another pretrained model takes the settings of SmolLM2-135M with
learning rates that fall with the square root of its size, and above a size a LoRA adapter. It is a start, not a result:
the recipe says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TEMPLATE, TEMPLATE_PARAMETERS = "smollm2-135m", 135e6
"""The model that recipes have settings for, and its size."""
GENERAL = f"general settings, those of {TEMPLATE} with learning rates by size"
SMALLEST = 20e6
"""A model below this many parameters is like `tiny`: the recipe's own settings suit it."""
UNKNOWN = 1e9
"""The size that a model is taken to have where neither its name nor its folder tells."""
LORA_ABOVE = 3e9
LORA = {"rank": 32, "alpha": 64}
LORA_RATE = 5.0
"""An adapter learns at a higher rate than whole weights."""
FULL_BYTES, LORA_BYTES = 16, 2.5
"""Memory of a parameter that learns (bfloat16 weight and gradient, float32 master, two moments), and of one below an
adapter.
"""
LEARNING = ("sft", "rl", "refresh", "actor", "critic")
"""Sections of recipes in which a language model learns."""
WORKSPACE = 16e9
"""Activations and the key-value cache."""


def stands_in(name: str, models: Mapping[str, Any]) -> bool:
    """Whether a model without settings of its own takes those of the template."""
    if name in models or name == "tiny" or TEMPLATE not in models:
        return False
    return (parameters_of(name) or UNKNOWN) >= SMALLEST


def fit(settings: dict[str, Any], name: str) -> dict[str, Any]:
    """Settings for the template, changed for a model of another size."""
    known = parameters_of(name)
    parameters = known or UNKNOWN
    adapter = parameters > LORA_ABOVE
    factor = (TEMPLATE_PARAMETERS / parameters) ** 0.5 * (LORA_RATE if adapter else 1.0)
    fitted = {key: _scaled(value, factor) if key in LEARNING else value for key, value in settings.items()}
    memory = parameters * (LORA_BYTES if adapter else FULL_BYTES) + WORKSPACE
    size = f"about {in_words(parameters)} parameters" if known else f"unknown size, taken as {in_words(parameters)}"
    learned = "a LoRA adapter" if adapter else "all weights"
    fitted["needs"] = f"one GPU with {memory / 1e9:.0f} GB to train {learned}, by estimate; the model itself"
    fitted["takes"] = f"not measured with this model: general settings for a pretrained model of {size}"
    if adapter:
        section = fitted.get("model")
        fitted["model"] = {**(section if isinstance(section, Mapping) else {"name": name}), "lora": LORA}
    return fitted


def reason(name: str, written: str, models: Mapping[str, Any], protocol: str) -> str:
    """In one line which settings a recipe with `models` gives the model `name`, and why; `written` is the file's."""
    if protocol not in ("", "own"):
        whose = "this recipe has it for this model" if _protocol(models.get(name)) else "asked for"
        return f"{name}: the published protocol '{protocol}' ({whose})"
    if name in models:
        return f"{name}: settings that this recipe has for it"
    if stands_in(name, models):
        size = f"{in_words(parameters)} parameters" if (parameters := parameters_of(name)) else "an unknown size"
        return f"{name}: {GENERAL}, for {size} (the recipe has none of its own for this model)"
    if name != written:
        return f"{name}: settings that this recipe has for {written} (it has none for this model)"
    return f"{name}: the recipe's own settings"


def choices(models: Mapping[str, Any]) -> tuple[str, ...]:
    """The models that a recipe has settings for, with the protocol that some bring; then all others."""
    named = [f"{name} (protocol {own})" if (own := _protocol(models[name])) else name for name in models]
    return (*named, f"any other pretrained model ({GENERAL})") if TEMPLATE in models else tuple(named)


def _protocol(settings: Any) -> str:
    return str(settings.get("protocol") or "") if isinstance(settings, Mapping) else ""


def rl_rate(parameters: float) -> float:
    """A learning rate for RL on all weights of a model of that size; recipes use 2e-5 for SmolLM2-135M."""
    return float(f"{min(3e-4, 2e-5 * (TEMPLATE_PARAMETERS / parameters) ** 0.5):.1e}")


def parameters_of(name: str) -> float | None:
    """About how many parameters a model has, from its folder's configuration or from its name; None where neither
    tells.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        found = next(
            (file for depth in ("", "*/", "*/*/", "*/*/*/") for file in folder.glob(f"{depth}config.json")), None
        )
        return _from_config(found) if found is not None else None
    sizes = re.findall(r"(?:(\d+)x)?(\d+(?:\.\d+)?)(b|m)(?![a-z])", name.rpartition("/")[2].lower())
    if not sizes:
        return None
    experts, number, unit = sizes[0]
    return float(experts or 1) * float(number) * {"b": 1e9, "m": 1e6}[unit]


def _from_config(file: Path) -> float | None:
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
        width, layers, vocabulary = (float(config[key]) for key in ("hidden_size", "num_hidden_layers", "vocab_size"))
        mlp = float(config.get("intermediate_size") or 4 * width)
        heads = float(config.get("num_attention_heads") or 1)
        # Queries may share keys and values, which are then narrower.
        shared = float(config.get("num_key_value_heads") or heads) / heads
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return vocabulary * width + layers * ((2 + 2 * shared) * width * width + 3 * width * mlp)


def in_words(parameters: float) -> str:
    if parameters >= 1e9:
        return f"{parameters / 1e9:.3g}B"
    return f"{parameters / 1e6:.0f}M" if parameters >= 1e7 else f"{parameters / 1e6:.2g}M"


def _scaled(section: Any, factor: float) -> Any:
    """A stage's settings with every learning rate times `factor`, in two digits."""
    if not isinstance(section, Mapping):
        return section
    return {
        key: float(f"{value * factor:.1e}")
        if key == "lr" and isinstance(value, int | float)
        else _scaled(value, factor)
        for key, value in section.items()
    }
