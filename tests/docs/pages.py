"""Pages as somebody reads them: every block from top to bottom, in an empty directory, at smoke size.

Conventions, all of them visible to a reader:

- A block whose first line is `# some/file.py` (any suffix) is that file.
- A block whose first line is `# needs ...` cannot run everywhere and says why; so can a single command, with a comment
  behind it. Its imports, options and settings are checked, and what it would have made counts as absent.
- Every other Python block runs, all blocks of a page in one namespace. A smoke run of a recipe is made once, and
  `oneiro.train` takes a few steps; examples/own_reward.py, whose test learns, is that block with more of them.
- Every other command of a shell block (`oneiro ...`, `python FILE`) is carried out. `oneiro run` is a dry run: recipe,
  presets, keys and values are checked. Where a later block uses the run, a very small finished run of the same recipe
  lies there. A few commands are only parsed: `PARSED` says which, and where they are tested.
- In a `$ oneiro ...` session the lines that follow are what it prints.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import importlib.util
import io
import re
import runpy
import shlex
import shutil
import sys
import tomllib
import types
import unittest.mock
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from typer.main import get_command

import oneiro
from oneiro.recipe import Recipe, load

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

SHELL = ("", "bash", "console", "sh", "shell")
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"(?:#|//|<!--) ([\w./-]+\.\w+)(?: -->)?\n")
NEEDS = re.compile(r"# (needs .+)")
PATH = re.compile(r"runs/[\w.-]+")

RUNS = {
    "runs/demo": "spa/frozen-lake",
    "runs/look": "spa/frozen-lake",
    "runs/games": "rlvr/text-game",
    "runs/pages": "rlvr/web-page",
    "runs/video": "rlvr/video-multi",
}
"""Runs that pages speak of without making them -> the recipe they come from."""

SYSTEMS = {
    "spa": "spa/frozen-lake",
    "rlvr/text-game": "rlvr/text-game",
    "rlvr/web-page": "rlvr/web-page",
    "rlvr/physics": "rlvr/physics",
    "rlvr/video": "rlvr/video-multi",
}
"""System -> the recipe whose finished run stands for a recipe that a page has loaded and changed."""

SMALL: dict[str, list[str]] = {
    "data levels": ["--levels", "64"],
    "data robot": ["--episodes", "2", "--size", "32", "--workers", "1"],
    "eval agent": ["--levels", "4", "--samples", "2"],
    "eval text-game": ["--rows", "4", "--depth", "1"],
    "eval video": ["--segments", "2", "--runs", "1", "--lpips", "none"],
}
"""Command -> options that make it small; the last of two equal options counts."""

PARSED = {
    "bench": "minutes; tests/bench",
    "board": "serves until it is stopped; tests/board",
    "check rulebook": "half a minute of searches; tests/worlds/rules",
    "check robot": "a minute of simulation; tests/worlds/robot",
    "check textgame": "half a minute of solving levels; tests/worlds/textgame",
    "doctor": "asks the model hub; tests/cli",
    "eval policy": "trains policies; tests/systems/policy_eval",
    "eval web-tasks": "minutes; web/tests",
    "export runs/demo --figures": "draws twenty files; tests/report",
    "models get": "downloads; tests/models",
    "web serve": "serves until it is stopped; web/tests",
}
"""How a command begins -> why its command line is only parsed, and where it is tested."""

RUN = oneiro.run
STEPS = 4
OUTPUTS = ("--out", "--json", "--keep", "--plot")


class PageError(AssertionError):
    """A page says something that does not work; the message names its line."""


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
        return found[1] if found and self.language != "" else None

    @property
    def needs(self) -> str | None:
        found = NEEDS.match(self.text)
        return found[1] if found else None

    @property
    def commands(self) -> list[Command]:
        """Its command lines with the output shown below each."""
        if self.language not in SHELL:
            return []
        found: list[Command] = []
        session = any(line.startswith("$ ") for line in self.text.splitlines())
        for number, line in enumerate(self.text.replace("\\\n", " ").splitlines()):
            code, _, comment = line.removeprefix("$ ").partition(" # ")
            program = code.split(" ")[0]
            if line.startswith("$ ") or (not session and program in ("oneiro", "python", "make")):
                needs = self.needs or (comment.strip() if comment.strip().startswith("needs ") else None)
                found.append(Command(self.page, self.line + 1 + number, code.strip(), needs))
            elif session and found and line.strip():
                found[-1].output.append(line)
        return found

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


@dataclass
class Command:
    """One command line of a page."""

    page: Path
    line: int
    text: str
    needs: str | None = None
    output: list[str] = field(default_factory=list)

    @property
    def program(self) -> str:
        return self.text.split(" ")[0]

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text)[1:]

    @property
    def name(self) -> str:
        """The command itself: `run`, `eval agent`."""
        words = self.words
        return " ".join(words[:2] if words[:1] in (["eval"], ["data"], ["models"]) else words[:1])

    @property
    def parsed(self) -> str | None:
        """Why the command is not carried out, if it is one of those."""
        line = " ".join(self.words)
        return next((reason for begin, reason in PARSED.items() if line.startswith(begin)), None)

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}: {self.text}"


def pages() -> list[Path]:
    """Every page of the documentation, and what stands beside it."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "web" / "README.md", *sorted(DOCS.rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [Block(page, text[: found.start()].count("\n") + 1, found[1], found[2]) for found in FENCE.finditer(text)]


def prose(page: Path) -> str:
    """The page without its blocks."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def title(page: Path) -> str:
    return page.relative_to(ROOT).with_suffix("").as_posix()


def entry_points(page: Path) -> dict[str, Any] | None:
    """The project that a page's pyproject.toml describes, if it has one."""
    texts = [block.text for block in blocks(page) if (block.file or "").endswith("pyproject.toml")]
    return tomllib.loads(texts[0])["project"] if texts else None


def preset_of(recipe: str) -> str:
    """The preset whose finished run stands for a run of the recipe: a toy video needs no simulator."""
    return "toy" if recipe == "rlvr/video-multi" else "smoke"


class Reader:
    """Follows one page in `place`. `finished` gives the directory of a finished, very small run of a recipe."""

    def __init__(self, page: Path, place: Path, finished: Callable[[str], Path]) -> None:
        self.page, self.place, self.finished = page, place, finished
        self.promised = dict(RUNS)
        """Run directories that a block may use -> the recipe they come from."""
        self.absent: dict[str, str] = {}
        """What commands that were not carried out would have made -> why not."""
        self.own: dict[str, Path] = {}
        """Recipes that the page has written -> a finished smoke run."""
        self.module = types.ModuleType(f"page_{re.sub(r'[^a-z0-9]', '_', title(page).lower())}")

    def follow(self) -> None:
        """Every block, top to bottom."""
        with self.standing():
            for block in blocks(self.page):
                if block.file:
                    self.write(block)
                elif block.language == "python":
                    self.check(block) if block.needs else self.run(block)
                for command in block.commands:
                    self.carry_out(command)

    @contextlib.contextmanager
    def standing(self) -> Iterator[None]:
        """In the place, which is importable; nothing of it stays behind."""
        before = set(sys.modules)
        sys.path.insert(0, str(self.place))
        sys.modules[self.module.__name__] = self.module
        try:
            with contextlib.chdir(self.place):
                yield
        finally:
            sys.path.remove(str(self.place))
            for name in set(sys.modules) - before:
                origin = str(getattr(sys.modules[name], "__file__", None) or "")
                if name == self.module.__name__ or origin.startswith(str(self.place)):
                    del sys.modules[name]

    def write(self, block: Block) -> None:
        assert block.file is not None
        target = self.place / block.file
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(block.text, encoding="utf-8")
        importlib.invalidate_caches()

    # Python -----------------------------------------------------------------------------------------------------------

    def run(self, block: Block) -> None:
        self.bring(PATH.findall(block.text))
        # Line numbers of the page, so that a traceback points into it.
        code = compile("\n" * block.line + block.text, str(block.page), "exec", dont_inherit=True)
        with unittest.mock.patch.multiple(oneiro, run=self.started, train=briefly(oneiro.train)):
            exec(code, self.module.__dict__)

    def started(self, recipe: Any, out: Any = None, overrides: Sequence[str] = ()) -> oneiro.Run:
        """`oneiro.run`, but that a smoke run is the finished one of its recipe, which has nothing left to do."""
        name = SYSTEMS.get(recipe.system) if isinstance(recipe, Recipe) else str(recipe)
        smoke = isinstance(recipe, Recipe) or list(overrides) == ["preset=smoke"]
        if smoke and name and ("/" in name or Path(name).is_file()) and out and not Path(out).exists():
            load(name, overrides)
            shutil.copytree(self.smoke(name), out)
            return RUN(out)
        return RUN(recipe, out, overrides)

    def smoke(self, recipe: str) -> Path:
        """A finished smoke run: that of all tests, or, of a recipe that the page has written, one for the page."""
        if not (self.place / recipe).is_file():
            return self.finished(recipe)
        if recipe not in self.own:
            self.own[recipe] = RUN(recipe, self.place / ".smoke" / recipe, ["preset=smoke"]).path
        return self.own[recipe]

    def check(self, block: Block) -> None:
        """A block that cannot run here: it compiles, and what it imports exists."""
        for node in ast.walk(ast.parse(block.text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "oneiro":
                for name in node.names:
                    if not hasattr(importlib.import_module(str(node.module)), name.name):
                        raise PageError(f"{block}: {node.module} has no {name.name}")

    # Commands ---------------------------------------------------------------------------------------------------------

    def carry_out(self, command: Command) -> None:
        if command.program == "make":
            return  # its targets have a test of their own
        if command.program == "python":
            return self.script(command)
        self.understand(command)
        words, reason = command.words, command.needs or self.missing(command) or command.parsed
        if command.name == "run":
            self.resolve(command)
            self.promise(words, reason)
        elif reason or command.name in PARSED:
            self.absent |= dict.fromkeys(made_by(words), reason or PARSED[command.name])
        else:
            self.bring(PATH.findall(command.text))
            small = [] if command.name == "eval text-game" and "--model" not in words else SMALL.get(command.name, [])
            self.expect(command, [*words, *small])

    def understand(self, command: Command) -> None:
        """What the command line does before it calls anything: an unknown command, option or type raises."""
        node, words = whole_command(), command.words
        try:
            context = node.make_context("oneiro", ["--help"], resilient_parsing=True)
            while hasattr(node, "resolve_command"):
                _, node, words = node.resolve_command(context, words)
            node.make_context(node.name, list(words))
        except Exception as error:
            raise PageError(f"{command}\n{getattr(error, 'message', error)}") from error

    def resolve(self, command: Command) -> None:
        """A run is resolved and not started: a recipe, preset, key or value that does not exist is a mistake."""
        words = command.words
        if (self.place / words[1]).exists() or words[1] in self.promised:
            self.bring([words[1]])
        for word in words[2:]:
            self.stand_in(*word.split("=")[:2])
        self.expect(command, [*(word for word in words if word != "--dry-run"), "--dry-run"])

    def stand_in(self, key: str, value: str = "") -> None:
        """What a setting names has to be there: a run that the page has promised, or data that only a reader has."""
        if value in self.promised:
            self.bring([value])
        elif value and (key == "data" or value in self.absent):
            (self.place / value).mkdir(parents=True, exist_ok=True)

    def promise(self, words: Sequence[str], reason: str | None) -> None:
        if "--out" in words:
            out = words[words.index("--out") + 1]
            if reason:
                self.absent[out] = reason
            else:
                self.promised[out] = self.promised.get(words[1], words[1])

    def missing(self, command: Command) -> str | None:
        """Why something that the command reads is not there, where an earlier command has said so."""
        for path, reason in self.absent.items():
            if re.search(rf"(^|[\s=,]){re.escape(path)}($|[\s/,])", command.text):
                return reason
        return None

    def bring(self, paths: Sequence[str]) -> None:
        """A finished run in the place of each run directory that does not exist yet."""
        for path in paths:
            recipe = self.promised.get(path, "")
            if not recipe or (self.place / path).exists():
                continue
            shutil.copytree(self.smoke(recipe), self.place / path)

    def expect(self, command: Command, words: Sequence[str]) -> None:
        """Carry it out, and compare with the output that the page shows; without any it must succeed."""
        from oneiro import cli

        printed = io.StringIO()
        stdin, sys.stdin = sys.stdin, io.StringIO()
        try:
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                code = cli.main(words)
        finally:
            sys.stdin = stdin
        text = " ".join(printed.getvalue().split())
        if code and not command.output:
            raise PageError(f"{command}\nexit code {code}: {text[-1000:]}")
        for line in command.output:
            if " ".join(line.split()) not in text:
                raise PageError(f"{command}\nprints {text[-1000:]!r}, not {line!r}")

    def script(self, command: Command) -> None:
        """`python FILE`: a file of the page runs, one of the repository exists; `-m` names a module, `-c` compiles."""
        words = command.words
        if words[0] == "-c":
            compile(words[1], str(command), "exec")
        elif words[0] == "-m":
            if importlib.util.find_spec(words[1]) is None:
                raise PageError(f"{command}\nno module {words[1]}")
        elif (self.place / words[0]).exists() and not command.needs:
            self.bring(PATH.findall(command.text))
            argv, sys.argv = sys.argv, words
            try:
                runpy.run_path(words[0], run_name="__main__")
            finally:
                sys.argv = argv
        elif not (ROOT / words[0]).exists() and not (self.place / words[0]).exists():
            raise PageError(f"{command}\nno file {words[0]}")


def briefly(train: Callable[..., Any]) -> Callable[..., Any]:
    """`oneiro.train` with at most `STEPS` steps."""
    return lambda *given, steps=STEPS, **settings: train(*given, steps=min(steps, STEPS), **settings)


@functools.cache
def whole_command() -> Any:
    """`oneiro` with all its commands: half a second to build."""
    from oneiro import cli

    return get_command(cli.app)


def made_by(words: Sequence[str]) -> list[str]:
    """The paths a command writes."""
    found = [words[at + 1] for at, word in enumerate(words[:-1]) if word in OUTPUTS]
    return [*found, words[2]] if words[0] == "merge" else found
