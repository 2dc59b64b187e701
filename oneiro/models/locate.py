"""Where weights are: a name, a folder, a run or a checkpoint -> the folder or hub name to load."""

from __future__ import annotations

from pathlib import Path

from oneiro.models.settings import KNOWN, require_place, require_words
from oneiro.runtime.errors import OneiroError

BEST = "best"
"""The folder of the weights that validation chose, among a stage's checkpoints."""
METADATA = "oneiro.json"
"""Beside the weights of every model that was trained here, also of those that are no language models."""


def locate(name: str) -> str:
    """Folder or hub name for a model name."""
    if name == "tiny":
        raise OneiroError(
            "'tiny' is trained from scratch by a recipe; to load one, give its folder (RUN/checkpoints/...)"
        )
    if name == "smollm2-135m":
        from oneiro.models import smollm

        return str(smollm.fetch())
    path = Path(name).expanduser()
    if path.is_dir():
        return str(newest_weights(path))
    require_place(name)
    _require_on_hub(name)
    return name


def require_model(name: str, ask_hub: bool) -> None:
    """One line for a model that cannot be loaded to read and write text, said before torch is. Downloads nothing."""
    require_place(name)
    path = Path(name).expanduser()
    if path.is_dir():
        if not (path / METADATA).is_file():
            require_words(str(newest_weights(path)))
    elif ask_hub and name not in KNOWN:
        _require_on_hub(name)


def _require_on_hub(name: str) -> None:
    if reason := missing_on_hub(name):
        raise OneiroError(f"no model folder at '{name}', and {reason}; give a folder with config.json or smollm2-135m")


def missing_on_hub(name: str) -> str | None:
    """Why the hub cannot give a model of that name; None where it can, or has before. Asks once and briefly."""
    from huggingface_hub import HfApi, constants, try_to_load_from_cache
    from huggingface_hub.errors import HfHubHTTPError

    if isinstance(try_to_load_from_cache(name, "config.json"), str):
        return None
    if constants.HF_HUB_OFFLINE:
        return "the Hugging Face hub is switched off (HF_HUB_OFFLINE) with no copy from before"
    try:
        HfApi().model_info(name, timeout=5.0)
    except HfHubHTTPError:  # no such model, or no permission
        return "the Hugging Face hub has no such model for you"
    except Exception:  # every network library raises its own kind
        return "the Hugging Face hub cannot be reached"
    return None


def newest_weights(path: Path) -> Path:
    """The folder itself, or for a run directory or checkpoint the weights inside it: the best where some were chosen,
    else the newest; WebRL's are its last phase's actor.
    """
    if (path / "config.json").is_file() or (path / "adapter_config.json").is_file():
        return path
    if (path / BEST / "model").is_dir():
        return path / BEST / "model"
    folders = [folder for place in ("model", "step-*/model") for folder in path.glob(place)]
    if folders:
        return max(folders)
    actors = [config.parent for config in path.glob("phase_*/actor/config.json")]
    if actors:
        return max(actors, key=lambda actor: int(actor.parent.name.partition("_")[2]))
    stages = [folder for folder in path.glob("checkpoints/*") if any(folder.glob("step-*/model"))]
    for kind in ("rl", "sft"):
        chosen = sorted(folder for folder in stages if folder.name.partition("-")[0] == kind)
        if len(chosen) > 1:
            names = ", ".join(str(folder) for folder in chosen)
            raise OneiroError(f"'{path}' holds several models; name one of {names}")
        if chosen:
            return newest_weights(chosen[0])
    raise OneiroError(f"'{path}' holds no model: no config.json there nor in its checkpoints")
