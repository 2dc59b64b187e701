"""`oneiro bench step`: a GRPO step of Oneiro beside a plain transformers loop and TRL's GRPOTrainer, on the same work.

Every contender has a process of its own with the same weights, prompts, lengths, reward, loss, optimiser and threads.
First all take two updates on the same given completions: their losses and gradient norms must agree. Then, after a
warm-up, they take turns, one step each, so that whatever else the machine does falls on all of them. On a GPU each runs
to its end before the next one starts: its memory would not hold three trainings of a large model.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch
from pydantic import Field

from bench import floor, models
from bench.contender import VLLM_SHARE, Job
from bench.growth import Axes, growth, three
from bench.measure import Machine, by_device, paired
from bench.process import Contender
from bench.sample import default_model, opened, sizes
from oneiro.models.language import default_device
from oneiro.recipe import Settings
from oneiro.report.table import Cell, Table
from oneiro.runtime import seeds
from oneiro.runtime.progress import Bar, console
from oneiro.runtime.threads import cores

NAMES = {
    "oneiro": "Oneiro",
    "transformers": "transformers generate + plain loop",
    "trl": "TRL GRPOTrainer",
    "trl-vllm": "TRL GRPOTrainer, vLLM",
}
GPU_ONLY = ("trl-vllm",)  # vLLM as TRL starts it needs CUDA
PARTS = ("step", "generate", "score", "update", "processor")
CHECKS = 2
"""Updates on given completions: the second sees what the first one's optimiser step did."""
WARM_UP = 1
TOLERANCE = {"cpu": 1e-3, "cuda": 5e-2}
"""Largest relative difference of losses and gradient norms that still counts as the same; bfloat16 has 8 bits."""


class StepSettings(Settings):
    prompts: int = Field(default_factory=by_device(64, 8), ge=1)
    group: int = Field(default_factory=by_device(16, 8), ge=2)
    """Samples of every prompt."""
    prompt_tokens: int = Field(default_factory=by_device(200, 32), ge=1)
    new_tokens: int = Field(default_factory=by_device(128, 64), ge=2)
    rounds: int = Field(3, ge=1)
    """Measured steps of every contender."""
    lr: float = Field(1e-5, gt=0)
    rows: int = Field(default_factory=by_device(64, 8), ge=1)
    """Rows the peers push through the model at once; on a processor 8 is where TRL is fastest and leanest."""
    max_batch_size: int = Field(default_factory=by_device(1024, 256), ge=1)
    """Rows Oneiro decodes at once."""
    checkpointing: bool = False
    """Whether TRL recomputes activations (its own default): less memory, more time."""
    device: str = Field(default_factory=lambda: default_device().type)
    threads: int = Field(default_factory=cores, ge=1)
    patience: float = Field(1800.0, gt=0)
    """Seconds to wait for one step."""
    growth: bool = False
    peers: bool = True
    """Measure the peers too."""
    turns: bool = Field(default_factory=lambda: default_device().type != "cuda")
    """Contenders take turns, all of them in memory; otherwise one after the other, each alone."""
    lora: int = Field(0, ge=0)
    """Rank of an adapter to learn in place of the weights; without peers."""
    seed: int = 0

    @property
    def beside_peers(self) -> bool:
        return self.peers and not self.lora

    @property
    def contenders(self) -> tuple[str, ...]:
        chosen = NAMES if self.beside_peers else ("oneiro",)
        return tuple(name for name in chosen if self.device == "cuda" or name not in GPU_ONLY)

    @property
    def sampled(self) -> int:
        """Tokens sampled in a step."""
        return self.prompts * self.group * self.new_tokens


@dataclass
class Result:
    """What one contender did on one model."""

    trouble: str = ""
    checks: list[dict[str, Any]] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    memory_before: float = 0.0
    memory: float = 0.0

    def take(self, contender: Contender, number: int) -> None:
        """Let the contender take a step, and keep what it found."""
        step = contender.step(number, given=number < CHECKS)
        self.trouble = contender.trouble
        self.memory_before, self.memory = contender.memory_before, contender.memory
        if step is not None and number < CHECKS:
            self.checks.append(step)
        elif step is not None and number >= CHECKS + WARM_UP:
            self.steps.append(step)

    def seconds(self, part: str) -> list[float]:
        return [step["seconds"][part] for step in self.steps]


Results = dict[str, dict[str, Result]]
"""Model -> contender -> what it did."""


def run(model: str | None = None, **options: Any) -> list[Table]:
    """By default SmolLM2-135M and 64 prompts x 16 samples on a GPU, `tiny` and 8 x 8 on a processor."""
    settings = StepSettings(**options)
    machine = Machine.measured(settings.threads, settings.device)
    model = model or default_model(settings.device)
    results = {model: measure(model, settings)}
    tables = [machine.table(), seconds_table(model, settings, results[model]), floor_table(model, machine, settings)]
    if settings.beside_peers:
        tables += [ratio_table(results), agreement_table(results, TOLERANCE[settings.device])]
    if settings.growth:
        tables.append(grow(model, machine, settings))
    return tables


def measure(model: str, settings: StepSettings, names: Sequence[str] | None = None) -> dict[str, Result]:
    """Contenders on one model: turn and turn about, or one after the other."""
    names = names or settings.contenders
    results = {name: Result() for name in names}
    steps = CHECKS + WARM_UP + settings.rounds
    together = [tuple(names)] if settings.turns else [(name,) for name in names]
    progress = Bar(f"bench {model}", steps * len(together), 0, console(), lambda line: None)
    with jobs(model, settings, names) as (scratch, tasks), progress as bar:
        for some in together:
            with started([tasks[name] for name in some], scratch, settings) as contenders:
                for number in range(steps):
                    for contender in contenders:
                        results[contender.name].take(contender, number)
                    bar.advance()
    return results


@contextmanager
def jobs(model: str, settings: StepSettings, names: Sequence[str]) -> Iterator[tuple[Path, dict[str, Job]]]:
    """A scratch folder with the model, and what each contender is told."""
    with tempfile.TemporaryDirectory(prefix="oneiro-bench-") as name:
        scratch = Path(name)
        folder = models.prepare(model, scratch / "model", settings.seed, settings.device)
        prompts = models.make_prompts(folder, settings.prompts, settings.prompt_tokens, settings.seed)
        if settings.device == "cuda":
            torch.cuda.empty_cache()  # what making the model took is not kept from the contenders
        yield scratch, {contender: job(contender, folder, prompts, settings) for contender in names}


@contextmanager
def started(tasks: Sequence[Job], scratch: Path, settings: StepSettings) -> Iterator[list[Contender]]:
    """Contenders in their processes with their models built, waiting; the processes end with the block."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(closing(Contender(task, scratch, settings.threads, settings.patience)))
            for task in tasks
        ]


def job(contender: str, folder: Path, prompts: Sequence[str], settings: StepSettings) -> Job:
    """What a contender is told."""
    return Job(
        contender=contender,
        folder=str(folder),
        prompts=prompts,
        given=given_completions(settings),
        group=settings.group,
        tokens=settings.new_tokens,
        lr=settings.lr,
        rows=settings.rows,
        checkpointing=settings.checkpointing,
        seed=settings.seed,
        device=settings.device,
        max_batch_size=settings.max_batch_size,
        lora=settings.lora,
    )


def given_completions(settings: StepSettings) -> list[list[list[int]]]:
    """[prompt][member] random tokens, of unequal lengths: with equal ones a group's advantages and loss sum to 0."""
    random = seeds.generator(settings.seed, "given")
    return [
        [
            random.integers(3, 280, random.integers(1, settings.new_tokens // 2 + 1)).tolist()
            for _ in range(settings.group)
        ]
        for _ in range(settings.prompts)
    ]


def seconds_table(model: str, settings: StepSettings, results: dict[str, Result]) -> Table:
    """The median step of every contender, in parts, and its memory."""
    table = Table(
        f"{model}: a GRPO step of {settings.prompts} prompts x {settings.group} samples, {settings.prompt_tokens} + "
        f"{settings.new_tokens} tokens, {settings.threads} threads",
        ["contender", *PARTS, "tokens/s", "peak memory", "libraries", "trouble"],
        {**dict.fromkeys(PARTS, "s"), "peak memory": "MB", "libraries": "MB"},
        "Medians; processor: time of all threads; tokens/s: sampled tokens over the whole step; libraries: memory "
        f"before the model is built; on a GPU, its memory, of which vLLM reserves {VLLM_SHARE:g}.",
    )
    for name, result in results.items():
        if result.trouble:
            table.add(NAMES[name], *[None] * 8, result.trouble)
            continue
        medians = [median(result.seconds(part)) for part in PARTS]
        speed = settings.sampled / medians[0]
        table.add(NAMES[name], *medians, speed, result.memory, result.memory_before, None)
    return table


def floor_table(model: str, machine: Machine, settings: StepSettings) -> Table:
    """What the machine's bandwidth and arithmetic allow, each group's prompt computed once."""
    with opened(model, machine, settings.seed) as (_, language):
        work = floor.Work.of(language.backbone)
    prompt, new = settings.prompt_tokens, settings.new_tokens
    prompts = floor.prefill(work, settings.prompts, prompt, machine)
    generate = prompts + floor.decoding(work, settings.prompts, settings.group, prompt, new, machine)
    rows = settings.prompts * settings.group
    update = 3 * (prompts + rows * new * work.operations(prompt + new / 2) / machine.arithmetic)
    table = Table(f"{model}: the floor of that step", ["step", "generate", "update"], dict.fromkeys(PARTS, "s"))
    table.add(generate + update, generate, update)
    return table


def ratio_table(results: Results, bars: dict[str, float] | None = None, memory_bar: float | None = None) -> Table:
    """How many times what Oneiro takes each peer takes, beside the bars, where there are any."""
    peers = [name for name in next(iter(results.values())) if name != "oneiro"]
    table = Table(
        "Times what Oneiro takes",
        ["model", "of", *(NAMES[peer] for peer in peers), "bar, against TRL", "verdict"],
        note="Medians over rounds; in brackets the smallest and the largest round.",
    )
    for model, by_name in results.items():
        for part in ("step", "generate", "update", "processor"):
            cells = [paired(by_name[peer].seconds(part), by_name["oneiro"].seconds(part)) for peer in peers]
            judge(table, model, part, cells, (bars or {}).get(model) if part == "step" else None)
        for part, libraries in (("peak memory", 0.0), ("memory above libraries", 1.0)):
            own = by_name["oneiro"]
            held = own.memory - libraries * own.memory_before
            found = [by_name[peer] for peer in peers]
            cells = [Cell(None if r.trouble else (r.memory - libraries * r.memory_before) / held) for r in found]
            judge(table, model, part, cells, None if libraries else memory_bar)
    return table


def judge(table: Table, model: str, part: str, cells: list[Cell], bar: float | None) -> None:
    value = cells[-1].value
    verdict = None
    if bar is not None:
        verdict = "no peer" if not isinstance(value, float) else "met" if value >= bar else "missed"
    table.add(model, part, *cells, bar, verdict)


def agreement_table(results: Results, tolerance: float) -> Table:
    """Loss and gradient norm of each contender's first updates, all on the same completions and rewards."""
    columns = ["model", "contender"]
    for update in range(1, CHECKS + 1):
        columns += [f"loss {update}", f"gradient norm {update}"]
    table = Table(
        "The same completions and rewards, the same numbers",
        [*columns, "difference", "verdict"],
        note=f"difference: the largest relative difference to Oneiro's numbers; the same up to {tolerance:g}.",
    )
    for model, by_name in results.items():
        own = numbers(by_name["oneiro"])
        for name, result in by_name.items():
            if result.trouble:
                table.add(model, NAMES[name], *[None] * (2 * CHECKS + 1), result.trouble)
                continue
            found = numbers(result)
            shown = [f"{x:.6f}" for x in found]
            if name == "oneiro":
                table.add(model, NAMES[name], *shown, None, None)
                continue
            difference = max(abs(a - b) / max(abs(b), 1e-6) for a, b in zip(found, own, strict=True))
            table.add(model, NAMES[name], *shown, difference, "same" if difference <= tolerance else "DIFFERENT")
    return table


def numbers(result: Result) -> list[float]:
    return [check[key] for check in result.checks for key in ("loss", "grad_norm")]


def grow(model: str, machine: Machine, settings: StepSettings) -> Table:
    """Oneiro alone, over prompts, their length, samples a prompt, and the model."""

    def cost(name: str, value: Any) -> tuple[float, int]:
        change = {} if name == "model" else {name: value}
        chosen = settings.model_copy(update={"rounds": 1, "peers": False, **change})
        found = measure(value if name == "model" else model, chosen)["oneiro"]
        return found.seconds("step")[0], chosen.sampled

    axes: Axes = {
        "prompts": three(settings.prompts),
        "prompt_tokens": three(4 * settings.prompt_tokens),
        "group": [max(2, settings.group // 4), settings.group, 4 * settings.group],
        "model": sizes(machine),
    }
    return growth(f"{model}: how a GRPO step grows", axes, cost)
