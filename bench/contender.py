"""One contender in a process of its own: it takes one GRPO step whenever it is asked to, and says how long that took.

    python -P contender.py JOB.json        requests come in, answers go out, one JSON line each

Oneiro, a plain loop over transformers and TRL's GRPOTrainer, which samples with transformers or with vLLM, each get the
same job: weights, prompts, lengths, reward, loss and optimiser. The file runs by its path under any Python, because a
peer may live in an environment of its own: only Oneiro's part imports Oneiro, and each part imports its libraries
itself, so that each shows its own memory.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

CLIP = 0.2
EPSILON = 1e-4
"""Added to a group's standard deviation; what TRL adds."""
BETAS = (0.9, 0.999)
CLIP_NORM = 1.0
VLLM_SHARE = 0.3
"""Of the GPU's memory, for vLLM's weights and cache: TRL's default."""


@dataclass(frozen=True)
class Job:
    """What every contender is told. Weight decay and KL are 0, one update a batch."""

    contender: str
    folder: str
    """A Hugging Face folder: the weights everybody starts from."""
    prompts: Sequence[str]
    given: Sequence[Sequence[Sequence[int]]]
    """Completions [prompt][member] for requests that ask for them instead of sampled ones."""
    group: int
    tokens: int
    """New tokens of every sample, exactly: end tokens are ignored."""
    lr: float
    rows: int
    """Rows a peer pushes through the model at once; gradients accumulate over the batch."""
    checkpointing: bool
    """Whether TRL recomputes activations."""
    seed: int
    device: str = "cpu"
    """`cpu` computes in float32, `cuda` in bfloat16."""
    max_batch_size: int = 256
    """Rows Oneiro decodes at once."""
    lora: int = 0
    """Rank of an adapter that Oneiro learns in place of the weights; the peers do not know it."""


def reward(tokens: Sequence[int]) -> float:
    """The share of even token ids: cheap, never the same for a whole group, and learnable."""
    return sum(1 for token in tokens if token % 2 == 0) / len(tokens)


def wait() -> None:
    """Until the GPU, if this process uses one, has done what it was told."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def peak_memory(device: str = "cpu") -> float:
    """The most memory this process ever held, MB; for `cuda`, on the GPU.

    Linux keeps `ru_maxrss` across exec, so a child would report its parent's peak: /proc is asked first.
    """
    if device == "cuda":
        torch: Any = sys.modules.get("torch")
        return float(torch.cuda.max_memory_reserved()) / (1 << 20) if torch else 0.0
    try:
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 1024
    except (OSError, IndexError):
        unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


class Clock:
    """Seconds of one step: its parts on the wall, and the whole also in processor time."""

    def __init__(self) -> None:
        self.parts: dict[str, float] = {}
        wait()
        self._wall, self._processor = time.perf_counter(), time.process_time()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Seconds inside count for `name`, less those that count for a part within it."""
        wait()
        start, others = time.perf_counter(), sum(self.parts.values())
        yield
        wait()
        within = sum(self.parts.values()) - others
        self.parts[name] = self.parts.get(name, 0.0) + time.perf_counter() - start - within

    def stop(self) -> dict[str, float]:
        """The update is what remains when generating and scoring are taken off."""
        wait()
        step, processor = time.perf_counter() - self._wall, time.process_time() - self._processor
        return {"step": step, "update": step - sum(self.parts.values()), "processor": processor, **self.parts}


class Channel:
    """Requests and answers on the original standard streams; whatever libraries print goes to standard error."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def say(self, **message: Any) -> None:
        self._out.write(json.dumps({**message, "memory": peak_memory(self._device)}) + "\n")
        self._out.flush()

    def ask(self) -> dict[str, Any] | None:
        line = sys.stdin.readline()
        return json.loads(line) if line.strip() else None

    def requests(self) -> Iterator[dict[str, Any]]:
        while (request := self.ask()) is not None:
            yield request

    def answer(self, seconds: dict[str, float], rewards: Sequence[float], loss: float, grad_norm: float) -> None:
        self.say(seconds=seconds, reward=sum(rewards) / len(rewards), loss=loss, grad_norm=grad_norm)


def import_model_code() -> None:
    """transformers imports its parts at first use; used now, they count as libraries for every contender."""
    for name in ("models.auto", "models.llama.modeling_llama", "generation.utils", "tokenization_utils_tokenizers"):
        import_module(f"transformers.{name}")


def number_type(job: Job) -> Any:
    import torch

    return torch.bfloat16 if job.device == "cuda" else torch.float32


def oneiro(job: Job, channel: Channel) -> None:
    """Oneiro's engine, GRPO and learner."""
    import numpy as np
    import torch

    from oneiro.episode import Episode, Row, SamplingParams, Segment, given
    from oneiro.learning.algorithms.grpo import Grpo
    from oneiro.learning.batch import Example
    from oneiro.learning.learner import Learner, LearnerSettings
    from oneiro.learning.loop import RlSettings
    from oneiro.learning.losses import LossSettings
    from oneiro.learning.optimiser import OptimiserSettings
    from oneiro.learning.settings import FilterSettings
    from oneiro.learning.update import learn
    from oneiro.models.language import LoraSettings, load, with_lora
    from oneiro.runtime import threads
    from oneiro.sampling.engine import Engine, SamplingSettings

    import_model_code()
    channel.say(ready=False)
    count = torch.get_num_threads()
    optimiser = OptimiserSettings(lr=job.lr, betas=BETAS, weight_decay=0.0, clip=CLIP_NORM)
    loss = LossSettings(clip_low=CLIP, clip_high=CLIP, dual_clip=None)
    # Groups without spread stay: they teach nothing, but the peers count their tokens in the mean.
    settings = RlSettings(
        algorithm=Grpo(epsilon=EPSILON),
        learner=LearnerSettings(optimiser=optimiser, loss=loss, update_threads=count),
        filter=FilterSettings(name="none"),
    )
    adapter = LoraSettings(rank=job.lora, alpha=2 * job.lora) if job.lora else None
    language = with_lora(load(job.folder, job.device), adapter)
    torch.set_num_threads(min(count, threads.by_size(language.backbone.shape.parameters)))  # as a run does
    engine, learner = Engine(language, job.max_batch_size), Learner(language.backbone, settings.learner, steps=1)
    prompts = [language.encode(prompt) for prompt in job.prompts]
    sampling = SamplingSettings(max_tokens=job.tokens, ignore_eos=True)

    def given_replies() -> list[list[Segment]]:
        """The job's completions with the log-probabilities the learner gives them."""
        replies = [
            [
                Segment(
                    np.array(ids), True, "assistant", logprobs=np.zeros(len(ids), np.float32), params=SamplingParams()
                )
                for ids in members
            ]
            for members in job.given
        ]
        examples = [
            Example.of(Row([given(p), s])) for p, members in zip(prompts, replies, strict=True) for s in members
        ]
        scores = learner.logprobs(examples)[0]
        for segment, score in zip((s for members in replies for s in members), scores, strict=True):
            segment.logprobs = score[-len(segment) :]
        return replies

    channel.say(ready=True)
    for request in channel.requests():
        replies = given_replies() if request["given"] else []
        clock = Clock()
        with clock.part("generate"):
            if not request["given"]:
                samples = engine.generate(prompts, job.group, sampling, seed=job.seed + request["step"])
                replies = [[sample.segments()[0] for sample in members] for members in samples]
        with clock.part("score"):
            episodes = [
                Episode([Row([given(prompt), reply])], [reward(reply.tokens.tolist())], group=group)
                for group, (prompt, members) in enumerate(zip(prompts, replies, strict=True))
                for reply in members
            ]
        found = learn(episodes, settings, {"policy": learner}, None, seed=0)
        channel.answer(clock.stop(), [e.score for e in episodes], found["loss"], found["grad_norm"])


def transformers(job: Job, channel: Channel) -> None:
    """`generate` and a plain loop: a page of PyTorch that anybody would write, and the second opinion on the loss."""
    import torch
    from torch.nn.functional import cross_entropy
    from torch.nn.utils.rnn import pad_sequence
    from transformers import AutoModelForCausalLM, AutoTokenizer

    import_model_code()
    channel.say(ready=False)
    torch.manual_seed(job.seed)
    model: Any = AutoModelForCausalLM.from_pretrained(job.folder, dtype=number_type(job))
    model.to(job.device)
    model.generation_config.eos_token_id = None
    optimiser = torch.optim.AdamW(model.parameters(), lr=job.lr, betas=BETAS, weight_decay=0.0, fused=True)
    texts = AutoTokenizer.from_pretrained(job.folder)(list(job.prompts), return_tensors="pt")["input_ids"]
    prompts = texts.repeat_interleave(job.group, 0).to(job.device)
    width = prompts.shape[1]
    completions_given = [torch.tensor(ids, device=job.device) for members in job.given for ids in members]
    channel.say(ready=True)
    for request in channel.requests():
        clock = Clock()
        with clock.part("generate"):
            if request["given"]:
                completions = completions_given
            else:
                sampling: dict[str, Any] = {
                    "do_sample": True,
                    "top_k": 0,
                    "max_new_tokens": job.tokens,
                    "pad_token_id": 0,
                }
                with torch.no_grad():
                    rows = model.generate(prompts, attention_mask=torch.ones_like(prompts), **sampling)
                completions = list(rows[:, width:])
        with clock.part("score"):
            rewards = torch.tensor([reward(ids.tolist()) for ids in completions], device=job.device)
            scores = rewards.view(-1, job.group)
            spread = scores.std(1, keepdim=True) + EPSILON
            advantages = ((scores - scores.mean(1, keepdim=True)) / spread).flatten()
        tokens = torch.cat([prompts, pad_sequence(completions, batch_first=True)], 1)
        mask = pad_sequence([torch.ones(len(ids), device=job.device) for ids in completions], batch_first=True)
        total = 0.0
        for part in torch.arange(len(tokens)).split(job.rows):
            logits = model(tokens[part], logits_to_keep=mask.shape[1] + 1).logits[:, :-1].float()
            logprobs = -cross_entropy(logits.transpose(1, 2), tokens[part, width:], reduction="none")
            ratio = (logprobs - logprobs.detach()).exp()
            advantage = advantages[part, None]
            gain = torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)
            loss = -(gain * mask[part]).sum() / mask.sum()
            loss.backward()
            total += float(loss.detach())
        norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM))
        optimiser.step()
        optimiser.zero_grad()
        channel.answer(clock.stop(), rewards.tolist(), total, norm)


def vllm_options(job: Job, longest: int) -> dict[str, Any]:
    """TRL's settings for vLLM in its own process, for rows of `longest` tokens. Past TRL, vLLM is told to make CUDA
    graphs up to all rows; by itself it stops at 512.
    """
    from trl.generation import vllm_generation
    from vllm import LLM

    vllm_generation.LLM = partial(
        LLM,
        dtype="bfloat16",
        enable_prefix_caching=True,
        compilation_config={"max_cudagraph_capture_size": len(job.prompts) * job.group},
        generation_config="vllm",
    )
    return {
        "use_vllm": True,
        "vllm_mode": "colocate",
        "vllm_gpu_memory_utilization": VLLM_SHARE,
        "vllm_max_model_length": longest,
        "generation_kwargs": {"ignore_eos": True, "detokenize": False},
    }


def trl(job: Job, channel: Channel, vllm: bool = False) -> None:
    """TRL's GRPOTrainer through its own `train`; a callback waits for requests before every step."""
    import tempfile

    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    import_model_code()
    channel.say(ready=False)
    tokenizer = AutoTokenizer.from_pretrained(job.folder)
    longest = max(map(len, tokenizer(list(job.prompts))["input_ids"])) + job.tokens
    batch = len(job.prompts) * job.group
    config = GRPOConfig(
        output_dir=tempfile.mkdtemp(prefix="oneiro-bench-"),
        per_device_train_batch_size=job.rows,
        gradient_accumulation_steps=batch // job.rows,
        num_generations=job.group,
        max_completion_length=job.tokens,
        loss_type="dapo",
        beta=0.0,
        epsilon=CLIP,
        learning_rate=job.lr,
        lr_scheduler_type="constant",
        adam_beta1=BETAS[0],
        adam_beta2=BETAS[1],
        weight_decay=0.0,
        max_grad_norm=CLIP_NORM,
        gradient_checkpointing=job.checkpointing,
        max_steps=1_000_000,
        shuffle_dataset=False,
        logging_steps=1,
        bf16=job.device == "cuda",
        use_cpu=job.device == "cpu",
        dataloader_pin_memory=False,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        seed=job.seed,
        **(vllm_options(job, longest) if vllm else {}),
    )
    clock, rewards, losses = Clock(), [0.0], [0.0]
    request: dict[str, Any] | None = None

    def reward_share(completion_ids: list[list[int]], **_: Any) -> list[float]:
        rewards[:] = [reward(ids) for ids in completion_ids]
        return rewards

    class Stepper(TrainerCallback):  # type: ignore[misc, unused-ignore]
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            model.generation_config.eos_token_id = None

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            nonlocal clock, request
            request = channel.ask()
            if request is None:
                sys.exit(0)
            clock, losses[:] = Clock(), []

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.seconds = clock.stop()

        def on_log(self, *_: Any, **found: Any) -> None:
            channel.answer(self.seconds, rewards, sum(losses), float(found["logs"]["grad_norm"]))

    model = AutoModelForCausalLM.from_pretrained(job.folder, dtype=number_type(job))
    trainer = GRPOTrainer(
        model,
        reward_share,
        config,
        # More rows than any run takes; every batch is the job's prompts in their order.
        train_dataset=Dataset.from_dict({"prompt": list(job.prompts) * 1000}),
        processing_class=tokenizer,
        callbacks=[Stepper()],
    )
    # End tokens are ignored: nothing is masked after one, and below, once `train` has set them, nothing stops at one.
    trainer.eos_token_ids = []
    if not vllm:
        trainer.generation_config.eos_token_id = trainer.generation_kwargs["eos_token_id"] = None

    def around(name: str, part: str) -> None:
        """Let the trainer's method `name` count as `part` of the step."""
        method = getattr(trainer, name)

        def timed(*arguments: Any, **named: Any) -> Any:
            with clock.part(part):
                return method(*arguments, **named)

        setattr(trainer, name, timed)

    sample, compute = trainer._generate_single_turn, trainer.compute_loss
    given = [list(ids) for members in job.given for ids in members]
    # Log-probabilities that vLLM does not know: TRL corrects nothing there.
    unknown = [[None] * len(ids) for ids in given] if vllm else None

    def completions(*arguments: Any, **named: Any) -> Any:
        assert request is not None
        return (given, unknown) if request["given"] else sample(*arguments, **named)

    def compute_loss(*arguments: Any, **named: Any) -> Any:
        loss = compute(*arguments, **named)
        losses.append(float(loss.detach()))
        return loss

    trainer._generate_single_turn, trainer.compute_loss = completions, compute_loss
    around("_generate", "generate")
    around("_generate_and_score_completions", "score")
    channel.say(ready=True)
    trainer.train()


CONTENDERS: dict[str, Callable[[Job, Channel], None]] = {
    "oneiro": oneiro,
    "transformers": transformers,
    "trl": trl,
    "trl-vllm": partial(trl, vllm=True),
}


def main(path: str) -> None:
    job = Job(**json.loads(Path(path).read_text()))
    channel = Channel(job.device)
    try:
        CONTENDERS[job.contender](job, channel)
    except ModuleNotFoundError as error:
        channel.say(absent=error.name)


if __name__ == "__main__":
    main(sys.argv[1])
