"""Settings for any pretrained model, from those that a recipe has for one of them.

Recipes are tuned for `tiny` and for SmolLM2-135M. Another pretrained model takes the settings of SmolLM2-135M with
learning rates that fall with the square root of its size, and above a size a LoRA adapter. It is a start, not a result:
the recipe says so. The size comes from the model's config.json; where there is none, the recipe asks for the rates.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

from oneiro.runtime.errors import OneiroError

TEMPLATE, TEMPLATE_PARAMETERS = "smollm2-135m", 135e6  # the model that recipes have settings for
GENERAL = f"general settings, those of {TEMPLATE} with learning rates by size"
MIN_PARAMETERS = 20e6  # a smaller model is like `tiny`: the recipe's own settings suit it
HUB_NAME = re.compile(r"\w[\w.-]*/[\w.-]+")
"""owner/name, as the hub has it, and no path."""
LORA_ABOVE_PARAMETERS = 3e9  # 16 bytes a parameter: beyond, all weights no longer learn on one GPU of 80 GB
LORA = {"rank": 32, "alpha": 64}
LORA_RATE_FACTOR = 5.0  # an adapter learns at a higher rate than whole weights
FULL_BYTES, LORA_BYTES = 16, 2.5
"""Memory of a parameter that learns (bfloat16 weight and gradient, float32 master, two moments), and of one below an
adapter.
"""
WORKSPACE_BYTES = 16e9  # activations and the key-value cache
LEARNING = ("sft", "rl", "refresh", "actor", "critic")
"""Sections of recipes in which a language model learns."""


def stands_in(name: str, models: Mapping[str, Any]) -> bool:
    """Whether a model without settings of its own takes those of the template."""
    if name in models or name == "tiny" or TEMPLATE not in models:
        return False
    parameters = count_parameters(name)
    return parameters is None or parameters >= MIN_PARAMETERS


def fit(settings: dict[str, Any], name: str, given: Container[str]) -> dict[str, Any]:
    """Settings for the template, changed for a model of another size. `given`: keys that the person sets anyway."""
    parameters = count_parameters(name)
    if parameters is None:
        _require_rates(settings, name, given)
        unknown = "a pretrained model of unknown size, with the learning rates that were given"
        return {**settings, "needs": f"{name}; its size is not known here", "takes": f"not measured: {unknown}"}
    adapter = parameters > LORA_ABOVE_PARAMETERS
    factor = (TEMPLATE_PARAMETERS / parameters) ** 0.5 * (LORA_RATE_FACTOR if adapter else 1.0)
    fitted = {key: _scale_rates(value, factor) if key in LEARNING else value for key, value in settings.items()}
    memory = parameters * (LORA_BYTES if adapter else FULL_BYTES) + WORKSPACE_BYTES
    learned = "a LoRA adapter" if adapter else "all weights"
    size = f"about {in_words(parameters)} parameters"
    fitted["needs"] = f"one GPU with {memory / 1e9:.0f} GB to train {learned} (estimate); the model itself"
    fitted["takes"] = f"not measured with this model: general settings for a pretrained model of {size}"
    if adapter:
        section = fitted.get("model")
        fitted["model"] = {**(section if isinstance(section, Mapping) else {"name": name}), "lora": LORA}
    return fitted


def _require_rates(settings: dict[str, Any], name: str, given: Container[str]) -> None:
    """A rate that suits 135M parameters ruins 7B, and a name tells no size that could be relied on."""
    config = find_config(name)
    whole = config is not None and any(config.parent.glob("tokenizer*"))
    if not whole and (Path(name).expanduser().is_dir() or not HUB_NAME.fullmatch(name)):
        return  # no model, half of one, or a name that is mistyped: whoever loads it says so
    missing = [key for key in _rate_keys(settings) if key.partition(".")[0] in LEARNING and key not in given]
    if missing:
        raise OneiroError(
            f"learning rates for '{name}' follow from its size, which no config.json here tells: get it with "
            f"`hf download {name} config.json`, or give {' and '.join(f'{key}=...' for key in missing)}"
        )


def _rate_keys(section: Mapping[str, Any], prefix: str = "") -> list[str]:
    keys = []
    for key, value in section.items():
        if isinstance(value, Mapping):
            keys += _rate_keys(value, f"{prefix}{key}.")
        elif key == "lr":
            keys.append(prefix + key)
    return keys


def reason(name: str, written: str, models: Mapping[str, Any], published: str) -> str:
    """In one line which settings a recipe with `models` gives the model `name`, and why; `written` is the file's."""
    if published:
        whose = "this recipe has it for this model" if base_name(models.get(name)) else "asked for"
        return f"{name}: the published protocol '{published}' ({whose})"
    if name in models:
        return f"{name}: settings that this recipe has for it"
    if stands_in(name, models):
        parameters = count_parameters(name)
        size = f"{in_words(parameters)} parameters" if parameters else "an unknown size"
        return f"{name}: {GENERAL}, for {size} (the recipe has none of its own for this model)"
    if name != written:
        return f"{name}: settings that this recipe has for {written} (it has none for this model)"
    return f"{name}: the recipe's own settings"


def choices(models: Mapping[str, Any]) -> tuple[str, ...]:
    """The models that a recipe has settings for, with the protocol that some bring; then all others."""
    named = [f"{name} (protocol {own})" if (own := base_name(models[name])) else name for name in models]
    return (*named, f"any other pretrained model ({GENERAL})") if TEMPLATE in models else tuple(named)


def base_name(layer: Any) -> str:
    """`spa`, of a layer with `base: _published/spa`."""
    return str(layer.get("base") or "").rpartition("/")[2] if isinstance(layer, Mapping) else ""


def rl_rate(parameters: float) -> float:
    """A learning rate for RL on all weights of a model of that size; recipes use 2e-5 for SmolLM2-135M."""
    return float(f"{min(3e-4, 2e-5 * (TEMPLATE_PARAMETERS / parameters) ** 0.5):.1e}")


def count_parameters(name: str) -> float | None:
    """About how many parameters a model has, by its config.json; None where there is none."""
    file = find_config(name)
    return _count_by_config(file) if file is not None else None


def find_config(name: str) -> Path | None:
    """The config.json of a model's folder, or of its copy in the hub's cache."""
    folder = Path(name).expanduser()
    if not folder.is_dir():
        return _find_cached_config(name)
    # A run's folder has its models up to three floors down.
    files = (file for depth in ("", "*/", "*/*/", "*/*/*/") for file in folder.glob(f"{depth}config.json"))
    return next(files, None)


def _find_cached_config(name: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        file = try_to_load_from_cache(name, "config.json")
    except HFValidationError:  # no name that the hub could have
        return None
    return Path(file) if isinstance(file, str) else None


def _count_by_config(file: Path) -> float | None:
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


def _scale_rates(section: Any, factor: float) -> Any:
    """A stage's settings with every learning rate times `factor`, in two digits."""
    if not isinstance(section, Mapping):
        return section
    return {
        key: float(f"{value * factor:.1e}")
        if key == "lr" and isinstance(value, int | float)
        else _scale_rates(value, factor)
        for key, value in section.items()
    }
