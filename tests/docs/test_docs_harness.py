"""The harness itself finds what is wrong with a page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs import pages
from tests.docs.pages import PageError, Reader, blocks
from tests.docs.settings import unknown_settings


def never(recipe: str) -> Path:
    raise AssertionError(f"no run of {recipe} is needed")


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Reader]:
    """A page with this text, and its reader."""
    monkeypatch.setattr(pages, "ROOT", tmp_path)

    def write(text: str) -> Reader:
        (tmp_path / "page.md").write_text(text)
        place = tmp_path / "place"
        place.mkdir()
        return Reader(tmp_path / "page.md", place, never)

    return write


@pytest.mark.parametrize(
    "line",
    [
        "oneiro run spa/frozen-lake rl.lr=1e-4",
        "oneiro run spa/frozen-lake preset=smok",
        "oneiro run spa/frozen-lake rl.steps=many",
        "oneiro run spa/frozen-pond",
        "oneiro runn spa/frozen-lake",
        "oneiro eval agent --world frozen-lake --player oracle",
        "oneiro check frozen-pond",
        "oneiro report runs/nowhere",
        "python nowhere.py",
    ],
)
@pytest.mark.parametrize("language", ["", "bash"])
def test_a_command_that_does_not_work_fails_the_page(page: Callable[[str], Reader], line: str, language: str) -> None:
    with pytest.raises(PageError, match=line.split()[-1]):
        page(f"# Page\n\n```{language}\n{line}\n```\n").follow()


def test_a_marked_command_is_not_carried_out_but_its_settings_are_checked(page: Callable[[str], Reader]) -> None:
    reader = page(
        "```bash\n# needs data: a download\noneiro data bytesized32 --from A --out B\noneiro check nothing\n```\n"
    )
    reader.follow()
    assert reader.absent == {"B": "needs data: a download"}
    with pytest.raises(PageError, match=r"rl\.lr"):
        Reader(
            _rewrite(reader, "```bash\n# needs a GPU\noneiro run spa/sokoban rl.lr=1\n```\n"), reader.place, never
        ).follow()


def test_what_a_marked_command_would_have_made_counts_as_absent(page: Callable[[str], Reader]) -> None:
    page(
        "```bash\noneiro data bytesized32 --from A --out data/b  # needs data: a download\n"
        "oneiro eval text-game --data data/b --answers perfect\n```\n"
    ).follow()


def test_python_runs_in_one_namespace_and_in_the_place(page: Callable[[str], Reader]) -> None:
    reader = page("```python\nfrom pathlib import Path\nx = 1\n```\n\n```python\nPath('x').write_text(str(x))\n```\n")
    reader.follow()
    assert (reader.place / "x").read_text() == "1"
    with pytest.raises(ZeroDivisionError):
        Reader(_rewrite(reader, "```python\n1 / 0\n```\n"), reader.place, never).follow()


def test_a_marked_python_block_must_import_what_exists(page: Callable[[str], Reader]) -> None:
    with pytest.raises(PageError, match="has no Draw"):
        page("```python\n# needs a GPU\nfrom oneiro.episode import Draw\n```\n").follow()


def test_a_session_shows_what_is_printed(page: Callable[[str], Reader]) -> None:
    shown = "```console\n$ oneiro run spa/frozen-lake rl.stps=3\nunknown key 'rl.stps'; did you mean 'rl.{}'?\n```\n"
    reader = page(shown.format("steps"))
    reader.follow()
    with pytest.raises(PageError, match="did you mean"):
        Reader(_rewrite(reader, shown.format("step")), reader.place, never).follow()


def test_a_setting_in_prose_that_no_recipe_has_is_found() -> None:
    assert unknown_settings("Values are YAML: `seed=1`, `rl.lr=1e-4`.") == ["no recipe has the setting rl.lr"]
    assert unknown_settings("Set `rl.learner.optimiser.lr=1e-4` or `rl.steps=3`; see `rollout.py`.") == []
    assert "whole number" in unknown_settings("`rl.steps=many`")[0]


def test_continued_lines_and_comments_are_one_command(page: Callable[[str], Reader]) -> None:
    reader = page("```bash\noneiro run spa/frozen-lake \\\n  preset=smoke  # small\n```\n")
    (command,) = (command for block in blocks(reader.page) for command in block.commands)
    assert command.words == ["run", "spa/frozen-lake", "preset=smoke"] and command.needs is None


def _rewrite(reader: Reader, text: str) -> Path:
    reader.page.write_text(text)
    return reader.page
