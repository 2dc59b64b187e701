"""One rollout server, vLLM or SGLang, by its address: token ids in and out, and new weights from a folder.

Neither is imported. vLLM needs `VLLM_SERVER_DEV_MODE=1` (it offers pause, resume and reload) and
`--logprobs-mode processed_logprobs` (log-probabilities of the tempered distribution); SGLang nothing. What a server
answers is checked before it is believed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from oneiro.episode import FinishReason, Sample, SamplingParams
from oneiro.sampling.completion import ServerFault
from oneiro.sampling.request import ask
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
