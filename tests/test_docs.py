"""The README and the pages work as printed: their Python runs, their commands are understood, links lead somewhere.

Conventions of the pages, all of them visible to a reader: a block whose first line is `# some/file.py` is that file; a
block that begins with `# needs ...` cannot run everywhere and says why; every other Python block of a page runs, in
order, in one namespace, in an empty directory. `runs/demo` there is a very small run of the demo's recipe.
"""

from __future__ import annotations

import ast
import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from typer.main import get_command

import oneiro
from oneiro import cli
from oneiro.agents.evaluate import AgentEvaluationSettings
from oneiro.agents.prompts import DialogueSettings
from oneiro.learning import algorithms
from oneiro.learning.filters import FilterSettings
from oneiro.learning.learner import LearnerSettings
from oneiro.learning.loop import RlSettings
from oneiro.learning.losses import LossSettings
from oneiro.learning.optimiser import OptimiserSettings
from oneiro.learning.sft import SftSettings
from oneiro.models.language import LoraSettings, ModelSettings
from oneiro.recipe import Recipe, find, listing, load, read
from oneiro.run import read_lines
from oneiro.sampling.engine import SamplingSettings
from oneiro.sampling.server import ServerConfig
from oneiro.systems.spa.pipeline import VARIANTS, SpaRecipe
from oneiro.worlds import registry

ROOT = Path(__file__).parents[1]
OWN = ("index", "extending", "spa", "agents", "models", "sampling", "learning", "episodes", "predictors", "papers")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs" / f"{name}.md" for name in (*OWN, "results"))]
EXTENDING = ROOT / "docs" / "extending.md"
QUICK = ("recipes", "check", "report", "models list", "merge", "eval agent --world reach")
"""Commands that are carried out; the others are parsed, and `run` is carried out as a dry run."""
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# ([\w./-]+\.\w+)\n")
NEEDS = re.compile(r"# (needs .+)\n")


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def file(self) -> str | None:
        found = FILE.match(self.text)
        return found[1] if found else None

    @property
    def needs(self) -> str | None:
        found = NEEDS.match(self.text)
        return found[1] if found else None

    def run(self, names: dict[str, Any]) -> None:
        # Line numbers of the page, so that a traceback points into it.
        exec(compile("\n" * self.line + self.text, str(self.page), "exec", dont_inherit=True), names)

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [Block(page, text[: found.start()].count("\n") + 1, found[1], found[2]) for found in FENCE.finditer(text)]


def snippets(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.language == "python" and not block.file and not block.needs]


def commands(page: Path, program: str) -> list[str]:
    """The lines of a page's console blocks that begin with `program`, without their comments."""
    lines = [line for block in blocks(page) if not block.language for line in block.text.splitlines()]
    return [line.partition("  #")[0].strip() for line in lines if re.match(rf"{program}\s", line)]


def title(page: Path) -> str:
    return page.stem


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("docs") / "demo"
    tiny = ["preset=smoke", "variants=[spa]", "rl.steps=1", "evaluation.levels=4"]
    return oneiro.run("spa/frozen-lake", out=out, overrides=tiny).path


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """An empty working directory, with `runs/demo` for the pages that speak of it."""
    monkeypatch.chdir(tmp_path)
    page = request.node.callspec.params.get("page") if hasattr(request.node, "callspec") else None
    if page is not None and "runs/demo" in page.read_text():
        shutil.copytree(request.getfixturevalue("demo"), tmp_path / "runs" / "demo")
    return tmp_path


@pytest.fixture
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The files of docs/extending.md, where the page says, and installed as `pip install --editable .` would."""
    for block in blocks(EXTENDING):
        if block.file:
            target = tmp_path / block.file
            target.parent.mkdir(exist_ok=True)
            target.write_text(block.text)
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"]
    metadata = tmp_path / f"{project['name']}-{project['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    sections = [f"[{group}]\n" + _lines(points) for group, points in project["entry-points"].items()]
    (metadata / "entry_points.txt").write_text("\n".join(sections))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    registry._plugins.cache_clear()
    yield tmp_path
    registry._plugins.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "toys"]:
        del sys.modules[name]


def _lines(points: dict[str, str]) -> str:
    return "".join(f"{name} = {target}\n" for name, target in points.items())


# docs/extending.md, to the letter -------------------------------------------------------------------------------------


def test_the_world_of_the_page_passes_the_check_on_the_command_line(toys: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(toys), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "oneiro", "check", "reach", "--json", "check.json"]
    done = subprocess.run(command, cwd=toys, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "oracle succeeds in 100.0%: the ceiling" in done.stdout
    assert not re.search(r"\b(warning|error)\b", (toys / "check.json").read_text())


def test_the_algorithm_and_the_predictor_of_the_page_train(toys: Path) -> None:
    """In a process of its own, as a reader would: algorithms of other packages are found when Oneiro is imported."""
    (toys / "follow.py").write_text("\n".join(block.text for block in snippets(EXTENDING)))
    environment = {**os.environ, "PYTHONPATH": str(toys), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "follow.py"], cwd=toys, env=environment, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    run = toys / "runs" / "best-of-group"
    recipe = read(run / "recipe.yaml")
    assert recipe["rl"]["algorithm"] == {"name": "best-of-group"} and recipe["world"] == {"name": "reach"}
    updates = [line for line in read_lines(run / "metrics.jsonl") if line["stage"] == "rl-spa" and line["groups_kept"]]
    assert updates and all(line["grad_norm"] > 0 for line in updates)
    assert (toys / "runs" / "next-number" / "rl" / "step-000002" / "model" / "config.json").exists()


def test_the_commands_of_the_page_work(toys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for line in commands(EXTENDING, "oneiro"):
        carry_out(line)
    printed = capsys.readouterr().out
    assert printed.count("Check of reach") == 2 and "oracle" in printed


# Python ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [page for page in PAGES if snippets(page) and page != EXTENDING], ids=title)
def test_the_python_of_a_page_runs(page: Path, place: Path) -> None:
    names: dict[str, Any] = {}
    for block in snippets(page):
        block.run(names)


@pytest.mark.parametrize("block", [block for page in PAGES for block in blocks(page) if block.needs], ids=str)
def test_a_block_that_cannot_run_everywhere_imports_what_exists(block: Block) -> None:
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.ImportFrom) and node.module:
            for name in node.names:
                assert hasattr(importlib.import_module(node.module), name.name)
    pytest.skip(f"{block}: {block.needs}")


# Commands -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page, "oneiro") and page != EXTENDING], ids=title)
def test_the_commands_of_a_page_are_understood(page: Path, place: Path) -> None:
    for line in commands(page, "oneiro"):
        carry_out(line)


def carry_out(line: str) -> None:
    """Parse a command line with all its options; then do it if it is quick and its runs are there, or its dry run."""
    words = shlex.split(line)[1:]
    understand(words)
    quick = line.startswith(tuple(f"oneiro {command}" for command in QUICK))
    if words[0] == "run":
        words = [word for word in words if word != "--dry-run"] + ["--dry-run"]
    elif not quick or not all(Path(word).exists() for word in words if word.startswith("runs/")):
        return
    assert cli.main(words) == 0, line


def understand(words: list[str]) -> None:
    """What the command line does before it calls anything: an unknown command, option or type raises."""
    command: Any = get_command(cli.app)
    context = command.make_context("oneiro", ["--help"], resilient_parsing=True)
    while hasattr(command, "resolve_command"):
        _, command, words = command.resolve_command(context, words)
    command.make_context(command.name, list(words))


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page, "make")], ids=title)
def test_make_knows_every_target_that_is_shown(page: Path) -> None:
    for line in commands(page, "make"):
        done = subprocess.run(["make", "-n", *shlex.split(line)[1:]], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, f"{line}: {done.stderr}"
        variables = re.findall(r"\b([A-Z]+)=", line)
        assert all(f"\n{name} ?=" in (ROOT / "Makefile").read_text() for name in variables), line


# Words ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", page.read_text())):
        name, _, anchor = target.partition("#")
        found = (page.parent / name).resolve() if name else page
        assert found.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", FENCE.sub("", found.read_text()), re.MULTILINE)
            assert anchor in [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings], target


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    assert [page.name for page in (ROOT / "docs").glob("*.md") if page.name not in (*_linked(index), "index.md")] == []


def _linked(text: str) -> list[str]:
    return re.findall(r"\]\(([\w-]+\.md)", text)


def test_every_file_recipe_and_setting_of_the_papers_page_exists() -> None:
    text = (ROOT / "docs" / "papers.md").read_text()
    for path in re.findall(r"`(oneiro/[^`]+)`", text):
        assert (ROOT / path).exists(), path
    for overrides in re.findall(r"`((?:rl|model|dialogue)[\w.]*=[^`]+)`", text):
        load("spa/frozen-lake", overrides.split())
    for recipe in re.findall(r"`((?:spa|rlvr|webrl)/[\w-]+)`", text):
        find(recipe)


def test_every_recipe_is_on_the_page_of_its_system() -> None:
    page = (ROOT / "docs" / "spa.md").read_text()
    assert [card.name for card in listing() if card.name.startswith("spa/") and f"`{card.name}`" not in page] == []


def test_the_readme_gives_the_demo_the_time_its_recipe_gives_it() -> None:
    (line,) = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("make demo   ")]
    assert read(find("spa/frozen-lake"))["takes"] in line


def test_pictures_are_small() -> None:
    for picture in (ROOT / "docs" / "images").iterdir():
        assert picture.stat().st_size < 300_000, picture


SETTINGS: list[tuple[str, str, type[BaseModel], tuple[str, ...]]] = [
    ("models", "model", ModelSettings, ()),
    ("models", "lora", LoraSettings, ()),
    ("sampling", "sampling", SamplingSettings, ()),
    ("sampling", "server", ServerConfig, ()),
    ("learning", "sft", SftSettings, ()),
    ("learning", "rl", RlSettings, ()),
    ("learning", "learner", LearnerSettings, ()),
    ("learning", "optimiser", OptimiserSettings, ()),
    ("learning", "loss", LossSettings, ()),
    ("learning", "filter", FilterSettings, ()),
    ("agents", "dialogue", DialogueSettings, ()),
    ("agents", "evaluation", AgentEvaluationSettings, ()),
    *((("spa", name, type(SpaRecipe.model_fields[name].default), ())) for name in ("self_play", "rollout", "watch")),
    ("spa", "", SpaRecipe, tuple(Recipe.model_fields)),
]
"""Page, section, class, and fields that are explained elsewhere."""


@pytest.mark.parametrize(("page", "section", "kind", "elsewhere"), SETTINGS, ids=[row[2].__name__ for row in SETTINGS])
def test_the_settings_on_a_page_are_those_of_the_class(
    page: str, section: str, kind: type[BaseModel], elsewhere: tuple[str, ...]
) -> None:
    """Every field is in the table with its default, and nothing else is. SPA's sections have tables of their own."""
    text = (ROOT / "docs" / f"{page}.md").read_text()
    heading = f"| setting of `{section}` | default |" if section else "| setting | default |"
    table = text.partition(heading)[2].partition("\n\n")[0]
    shown = dict(re.findall(r"^\| `(\w+)` \| (.+?) \|", table, re.MULTILINE))
    defaults = {name: field.get_default(call_default_factory=True) for name, field in kind.model_fields.items()}
    if kind is SpaRecipe:
        sections = {name for name, default in defaults.items() if isinstance(default, BaseModel)}
        assert all(f"`{name}`" in text for name in sections)
        elsewhere = (*elsewhere, *sections)
    assert set(shown) == set(defaults) - set(elsewhere), f"the table '{heading}' of docs/{page}.md"
    for name, default in defaults.items():
        if name in shown and isinstance(default, str | int | float):
            written = str(default).lower() if isinstance(default, bool) else str(default)
            assert shown[name].strip("`") == written, f"docs/{page}.md: the default of {name}"


def test_every_variant_and_algorithm_is_explained() -> None:
    spa, learning = ((ROOT / "docs" / f"{page}.md").read_text() for page in ("spa", "learning"))
    shown = set(re.findall(r"^\| `([\w-]+)` \|", spa.partition("## Variants")[2].partition("##")[0], re.MULTILINE))
    assert shown == {name for name in VARIANTS if not re.fullmatch(r"epochs-[2-5]", name)}
    for kind in vars(algorithms).values():
        if isinstance(kind, type) and issubclass(kind, algorithms.Algorithm) and kind is not algorithms.Algorithm:
            (row,) = re.findall(rf"^\| `{re.escape(kind().name)}` \|.*$", learning, re.MULTILINE)
            assert all(f"`{name}`" in row for name in kind.model_fields if name != "name"), kind
