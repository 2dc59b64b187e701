from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from oneiro.models.language import write_folder, write_state
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.files import damage, unwritable, write_manifest, write_text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    save_file({"weight": np.ones(3, np.float32)}, tmp_path / "model" / "model.safetensors")
    (tmp_path / "model" / "config.json").write_text("{}")
    write_manifest(tmp_path, step=3)
    return tmp_path


def test_a_folder_as_it_was_written_is_whole_also_with_notes_beside(folder: Path) -> None:
    (folder / "model" / "notes.txt").write_text("mine")
    assert damage(folder, step=3) is None


@pytest.mark.parametrize("name", ["model/model-00002.safetensors", "model/pytorch_model.bin", "extra.pt"])
def test_weights_that_nobody_listed_are_damage(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"garbage")
    assert damage(folder, step=3) == f"{name} was not written with it"
    assert (damage(folder, below="model/", step=3) is None) == (name == "extra.pt")


def test_a_changed_or_missing_file_and_another_folders_manifest_are_damage(folder: Path) -> None:
    (folder / "model" / "config.json").write_text("[]")
    assert damage(folder, step=3) == "model/config.json is not what was written"
    (folder / "model" / "config.json").unlink()
    assert damage(folder, step=3) == "model/config.json is not what was written"
    assert damage(folder, step=4) == "manifest.json is not of this folder"


def save_tensors(path: Path) -> None:
    write_state(path, {"weight": torch.zeros(100_000)})


def save_folder(path: Path) -> None:
    """As transformers does: the library's file is no file of ours."""
    from safetensors.torch import save_file

    write_folder(path, lambda part: save_file({"weight": torch.zeros(100_000)}, part / "model.safetensors"))


@pytest.mark.parametrize("write", [lambda path: write_text(path, "x" * 400_000), save_tensors, save_folder])
def test_a_file_that_does_not_fit_is_named_whoever_writes_it(tmp_path: Path, write: Callable[[Path], None]) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        with pytest.raises(OneiroError, match=rf"cannot write {tmp_path}/target: .*; free some space"):
            write(tmp_path / "target")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_noticed_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    assert unwritable(tmp_path / "new" / "folder") is None
    assert unwritable(tmp_path / "file" / "below") == f"{tmp_path}/file is no folder"
    monkeypatch.setattr("os.access", lambda place, mode: place != tmp_path)  # root may write everywhere
    assert unwritable(tmp_path / "new" / "folder") == f"no permission to write {tmp_path}"
