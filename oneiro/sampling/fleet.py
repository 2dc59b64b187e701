"""Rollouts by servers: an engine whose samples come from vLLM or SGLang, by their addresses.

Before a step is played the servers get the policy's weights, through a folder that they can read, as often as
`staleness` asks for; every sampled token carries the version it was drawn with. A request goes to the server with least
to do, and to another one where it fails. A server that fails is left out; it comes back, with new weights, once it
answers again. Every wait ends.

Neither server is imported. vLLM needs `VLLM_SERVER_DEV_MODE=1` (it offers pause, resume and reload) and
`--logprobs-mode processed_logprobs` (log-probabilities of the tempered distribution); SGLang nothing. What a server
answers is checked before it is believed.
"""

from __future__ import annotations

import math
import shutil
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from oneiro.episode import FinishReason, Sample, SamplingParams, Tokens
from oneiro.models.language import LanguageModel
from oneiro.runtime import seeds
from oneiro.runtime.clock import spent
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.engine import Engine
from oneiro.sampling.http import ServerFault, ask
from oneiro.sampling.settings import FleetSettings, SamplingSettings

HEALTH_SECONDS = 5.0  # /health samples nothing: a server that takes longer is not there
ABORTED = ("abort", "aborted", "error")


@dataclass
class RolloutServer:
    """A server and what is known of it."""

    url: str
    settings: FleetSettings
    vocabulary: int
    version: int = -1
    """Of its weights, as far as we know; -1: unknown."""
    alive: bool = False
    busy: int = 0
    fault: str = "no request yet"
    checked_at: float = -math.inf
    """On the monotonic clock: when it last had to show that it is there."""

    def is_healthy(self) -> bool:
        try:
            ask(f"{self.url}/health", seconds=HEALTH_SECONDS)
        except ServerFault as fault:
            self.fault = str(fault)
            return False
        return True

    def update(self, folder: str, version: int) -> None:
        """Load the weights of a folder between two requests: those under way end before."""
        seconds = self.settings.timeout_s
        if self.settings.kind == "vllm":
            ask(f"{self.url}/pause?mode=wait", {}, seconds)
            try:
                rpc = {"method": "reload_weights", "kwargs": {"weights_path": folder}, "timeout": seconds}
                ask(f"{self.url}/collective_rpc", rpc, seconds)
            finally:
                ask(f"{self.url}/resume", {}, seconds)
        else:
            body = {"model_path": folder, "weight_version": str(version), "abort_all_requests": False}
            reply = ask(f"{self.url}/update_weights_from_disk", body, seconds)
            if not isinstance(reply, dict) or reply.get("success") is not True:
                raise ServerFault(f"new weights were refused: {str(reply)[:200]}")
        self.version = version

    def sample(self, prompt: list[int], n: int, sampling: SamplingSettings, seed: int) -> list[Sample]:
        """Up to `n` samples: a server may give fewer. Each carries the version of the weights that drew it."""
        version = self.version
        if self.settings.kind == "vllm":
            reply = ask(f"{self.url}/v1/completions", self._vllm(prompt, n, sampling, seed), self.settings.timeout_s)
            choices = _choices(reply)
            replies = [_from_vllm(choice) for choice in choices]
        else:
            reply = ask(f"{self.url}/generate", _sglang(prompt, n, sampling, seed), self.settings.timeout_s)
            replies = [_from_sglang(one) for one in (reply if isinstance(reply, list) else [reply])]
        samples = []
        for tokens, logprobs, finish, server_version in replies[:n]:
            if finish in ABORTED:
                continue
            if server_version is not None and server_version != str(version):
                self.version = int(server_version) if server_version.isdecimal() else -1
                raise ServerFault(f"it samples with weights of version {server_version[:20]}, not {version}")
            samples.append(self._sample(tokens, logprobs, finish, version, sampling))
        return samples

    def _vllm(self, prompt: list[int], n: int, sampling: SamplingSettings, seed: int) -> dict[str, Any]:
        return {
            "model": self.settings.model,
            "prompt": prompt,
            "n": n,
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "stop": list(sampling.stop),
            "ignore_eos": sampling.ignore_eos,
            "seed": seed % 2**31,
            "logprobs": 1,
            "return_token_ids": True,
        }

    def _sample(self, tokens: Any, logprobs: Any, finish: str, version: int, sampling: SamplingSettings) -> Sample:
        ids = isinstance(tokens, list) and all(type(t) is int and 0 <= t < self.vocabulary for t in tokens)
        if not ids or not 0 < len(tokens) <= sampling.max_tokens:
            raise ServerFault("its tokens are not what was asked for")
        numbers = isinstance(logprobs, list) and all(isinstance(p, int | float) and -1e30 < p < 0.001 for p in logprobs)
        if not numbers or len(logprobs) != len(tokens):
            raise ServerFault(f"{len(tokens)} tokens came without a log-probability for each")
        return Sample(
            np.array(tokens, np.int32),
            np.array(logprobs, np.float32),
            np.zeros(len(tokens), bool),
            FinishReason.LENGTH if finish == "length" else FinishReason.TOKEN,
            SamplingParams(sampling.temperature),
            np.full(len(tokens), version, np.int32),
        )


def _sglang(prompt: list[int], n: int, sampling: SamplingSettings, seed: int) -> dict[str, Any]:
    params = {
        "n": n,
        "max_new_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "stop": list(sampling.stop),
        "ignore_eos": sampling.ignore_eos,
        "sampling_seed": seed % 2**31,
    }
    return {"input_ids": prompt, "sampling_params": params, "return_logprob": True}


Read = tuple[Any, Any, str, str | None]
"""Tokens, log-probabilities, why it ended, and the version of the weights where the server tells it."""


def _choices(reply: Any) -> list[dict[str, Any]]:
    """The choices of a completion, each index once."""
    choices = reply.get("choices") if isinstance(reply, dict) else None
    if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
        raise ServerFault("the reply has no choices")
    return list({choice.get("index", place): choice for place, choice in enumerate(choices)}.values())


def _from_vllm(choice: dict[str, Any]) -> Read:
    logprobs = choice.get("logprobs")
    values = logprobs.get("token_logprobs") if isinstance(logprobs, dict) else None
    return choice.get("token_ids"), values, str(choice.get("finish_reason")), None


def _from_sglang(reply: Any) -> Read:
    info = reply.get("meta_info") if isinstance(reply, dict) else None
    if not isinstance(info, dict):
        raise ServerFault("the reply has no meta_info")
    pairs, finish, version = info.get("output_token_logprobs"), info.get("finish_reason"), info.get("weight_version")
    if not isinstance(pairs, list) or not all(isinstance(pair, list) and len(pair) >= 2 for pair in pairs):
        raise ServerFault("the reply has no log-probabilities")
    kind = str(finish.get("type")) if isinstance(finish, dict) else str(finish)
    return [pair[1] for pair in pairs], [pair[0] for pair in pairs], kind, None if version is None else str(version)


FIRST_WAIT_S = 0.2  # pauses double from here, to two seconds


class Fleet(Engine):
    """`Engine` over servers. `folder` is where weights are handed over."""

    def __init__(self, language: LanguageModel, settings: FleetSettings, folder: str | Path) -> None:
        super().__init__(language)
        if hasattr(language.model, "get_base_model"):
            raise OneiroError("rl.servers: servers take whole weights; set merge_lora=true or model.lora=null")
        self.settings, self.folder = settings, Path(settings.folder or folder).absolute()
        vocabulary = language.backbone.shape.vocabulary
        self.servers = [RolloutServer(url.rstrip("/"), settings, vocabulary) for url in settings.urls]
        self.version = -1
        self.step = 0
        self._written: Path | None = None
        self._lock, self._reviving = threading.Lock(), threading.Lock()
        self._lags: list[int] = []

    # Weights

    def at(self, step: int) -> None:
        """Bring the servers near the policy's weights of a step: no more than `staleness` steps behind."""
        self.step = step
        if self.version < 0 or not 0 <= step - self.version <= self.settings.staleness:
            self.version = step
            self._write()
            with ThreadPoolExecutor(len(self.servers)) as pool:
                list(pool.map(self._revive, self.servers))
        self._require_one()

    def _write(self) -> None:
        """One folder per version; the one before stays for a server that still reads it."""
        before, self._written = self._written, self.folder / f"version-{self.version:06d}"
        self.language.save(self._written)
        for old in self.folder.glob("version-*"):
            if old not in (before, self._written):
                shutil.rmtree(old, ignore_errors=True)

    def _revive(self, server: RolloutServer) -> None:
        """Ask a server whether it is there and give it the present weights."""
        server.checked_at = time.monotonic()
        if not server.is_healthy():
            server.alive = False
            return
        try:
            if server.version != self.version or not server.alive:
                server.update(str(self._written), self.version)
            server.alive, server.fault = True, ""
        except ServerFault as fault:
            server.alive, server.fault = False, f"new weights failed: {fault}"

    def _require_one(self) -> None:
        """At least one server answers, within `patience_s`."""
        deadline = time.monotonic() + self.settings.patience_s
        while not any(server.alive for server in self.servers):
            if time.monotonic() > deadline:
                faults = "; ".join(f"{server.url}: {server.fault[:150]}" for server in self.servers)
                raise OneiroError(f"no rollout server answered within {self.settings.patience_s:.0f} s ({faults})")
            self._revive_absent()
            time.sleep(FIRST_WAIT_S)

    def _revive_absent(self) -> None:
        """Ask servers that were left out, each every `revive_s` seconds."""
        if not self._reviving.acquire(blocking=False):
            return
        try:
            for server in self.servers:
                if not server.alive and time.monotonic() - server.checked_at >= self.settings.revive_s:
                    self._revive(server)
        finally:
            self._reviving.release()

    # Sampling

    def generate(
        self,
        prompts: Sequence[Tokens | Sequence[int]],
        n: int = 1,
        sampling: SamplingSettings | None = None,
        forced: Sequence[Tokens | None] | None = None,
        seed: int | Sequence[int] = 0,
    ) -> list[list[Sample]]:
        """`n` samples for every prompt, by whichever servers answer."""
        sampling = sampling or SamplingSettings()
        if forced is not None and any(row is not None for row in forced):
            raise OneiroError("rl.servers: servers cannot force tokens between sampled ones; leave it out for video")
        if not sampling.params.whole:
            raise OneiroError(
                "rl.servers: with top_p or top_k a server's log-probabilities are not the policy's; use temperature"
            )
        if self.version < 0:
            self.at(self.step)
        own_seeds = [seeds.derive(seed, i) for i in range(len(prompts))] if isinstance(seed, int) else seed
        deadline = time.monotonic() + self.settings.total_s
        workers = max(1, min(len(prompts), len(self.servers) * self.settings.concurrency))
        with spent("waiting"), ThreadPoolExecutor(workers, "oneiro-fleet") as pool:
            futures = [
                pool.submit(self._samples, np.asarray(p).tolist(), n, sampling, own, deadline)
                for p, own in zip(prompts, own_seeds, strict=True)
            ]
            try:
                return [future.result() for future in futures]
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _samples(
        self, prompt: list[int], n: int, sampling: SamplingSettings, seed: int, deadline: float
    ) -> list[Sample]:
        """All samples of one prompt; what a server left out is asked for again."""
        samples: list[Sample] = []
        faults = attempt = 0
        while len(samples) < n:
            if time.monotonic() > deadline:
                raise OneiroError(
                    f"rollout servers took longer than {self.settings.total_s:.0f} s (rl.servers.total_s)"
                )
            self._revive_absent()
            server = self._choose_server()
            if server is None:
                self._require_one()
                continue
            try:
                received = server.sample(prompt, n - len(samples), sampling, seeds.derive(seed, attempt))
                if not received:
                    raise ServerFault("it gave no whole sample")
                samples += received
                with self._lock:
                    self._lags += [
                        self.step - int(sample.versions[0]) for sample in received if sample.versions is not None
                    ]
            except ServerFault as fault:
                faults += 1
                server.alive, server.fault = False, str(fault)
                if faults > self.settings.retries:
                    raise OneiroError(
                        f"rollout servers failed {faults} times; the last, {server.url}: {fault}"
                    ) from fault
                time.sleep(min(2.0, FIRST_WAIT_S * 2**faults))
            finally:
                with self._lock:
                    server.busy -= 1
            attempt += 1
        return samples

    def _choose_server(self) -> RolloutServer | None:
        """The server that is there, has weights no older than allowed, and has least to do."""
        with self._lock:
            there = [server for server in self.servers if server.alive and self._fresh(server)]
            if not there:
                return None
            chosen = min(there, key=lambda server: server.busy)
            chosen.busy += 1
            return chosen

    def _fresh(self, server: RolloutServer) -> bool:
        if 0 <= self.step - server.version <= self.settings.staleness:
            return True
        server.alive, server.fault = False, f"its weights are of version {server.version}"
        return False

    def metrics(self) -> dict[str, float]:
        """Since the last call: how many steps older than the policy the samples' weights were, and who is there."""
        lags, self._lags = self._lags, []
        return {
            "staleness": float(np.mean(lags)) if lags else 0.0,
            "servers": float(sum(server.alive for server in self.servers)),
        }
