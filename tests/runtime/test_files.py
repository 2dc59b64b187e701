from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from oneiro.runtime.files import damage, write_manifest


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
