"""Rollout servers for tests: the routes of vLLM and SGLang over our own engine, and ways to misbehave."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from oneiro.episode import Sample
from oneiro.models.language import LanguageModel
from oneiro.sampling.engine import Engine, SamplingSettings


class FakeServer:
    """`with FakeServer(language, "vllm") as server: server.url`. `faults` are misdeeds still to be done, in order."""

    def __init__(self, language: LanguageModel, kind: str) -> None:
        self.engine, self.kind = Engine(language), kind
        self.version = "base"
        self.faults: list[str] = []
        self.deaf = self.refuses = False
        """Neither alive nor dead: connections are closed without an answer. Or it takes no new weights."""
        self.naps = 0
        """Questions after its health that it does not hear."""
        self.requests: list[str] = []
        self.bodies: list[Any] = []
        """What it was asked to sample."""
        self.most = self._present = 0
        """Requests that it sampled for at once."""
        self.company = 1
        """So many it waits for before it answers, a minute at most."""
        self.updates = 0
        self.over = threading.Event()
        """The test has ended."""
        self._lock = threading.Lock()
        self._came = threading.Condition()

    def __enter__(self) -> FakeServer:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *args: Any) -> None:
                pass

            def do_GET(self) -> None:
                outer.serve(self, None)

            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                outer.serve(self, json.loads(self.rfile.read(length) or b"{}"))

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *error: Any) -> None:
        self.over.set()
        self.http.shutdown()
        self.http.server_close()

    def serve(self, handler: BaseHTTPRequestHandler, body: Any) -> None:
        path = handler.path.split("?")[0]
        with self._lock:
            self.requests.append(handler.path)
            sampled = path in ("/v1/completions", "/generate")
            fault = self.faults.pop(0) if sampled and self.faults else ""
            napping = path == "/health" and self.naps > 0
            self.naps -= napping
        if napping:
            handler.connection.close()
            return
        if self.deaf or fault == "die":
            self.deaf = True
            handler.connection.close()
            return
        if sampled:
            self.bodies.append(body)
            self.meet()
        if fault == "slow":
            self.over.wait(60)  # until the test ends: whoever goes on did not wait for it
        if fault == "garbage":
            reply: Any = {"choices": [{"token_ids": [10**9], "logprobs": {"token_logprobs": ["x"]}}], "meta_info": {}}
        elif fault == "empty":
            reply = {}
        elif sampled:
            with self._lock:
                reply = self.sampled(body, fault)
        else:
            reply = self.other(path, body)
        with self._came:
            self._present -= sampled
        data = json.dumps(reply).encode()
        if fault == "half":
            data = data[: len(data) // 2]
        with suppress(OSError):
            handler.send_response(200 if reply is not None else 404)
            handler.send_header("Content-Length", str(len(data)))
            handler.end_headers()
            handler.wfile.write(data)

    def meet(self) -> None:
        """Wait for those who are asked for at the same time."""
        with self._came:
            self._present += 1
            self.most = max(self.most, self._present)
            self._came.notify_all()
            self._came.wait_for(lambda: self.most >= self.company, 60.0)

    def other(self, path: str, body: Any) -> Any:
        if path == "/health":
            return {}
        if self.kind == "vllm" and path in ("/pause", "/resume"):
            return {"status": path}
        with self._lock:
            if self.kind == "vllm" and path == "/collective_rpc" and body["method"] == "reload_weights":
                self.load(Path(body["kwargs"]["weights_path"]))
                return {"results": [None]}
            if self.kind == "sglang" and path == "/update_weights_from_disk" and self.refuses:
                return {"success": False, "message": "no room"}
            if self.kind == "sglang" and path == "/update_weights_from_disk":
                self.load(Path(body["model_path"]))
                self.version = body["weight_version"]
                return {"success": True, "message": ""}
        return None

    def load(self, folder: Path) -> None:
        torch.set_num_threads(1)
        self.take(load_file(folder / "model.safetensors"))
        self.updates += 1

    def take(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Other weights in the place of its own."""
        own = self.engine.language.model.state_dict()
        with torch.no_grad():
            for name, tensor in weights.items():
                own[name].copy_(tensor)

    def sampled(self, body: Any, fault: str) -> Any:
        params = body if self.kind == "vllm" else body["sampling_params"]
        prompt = body["prompt"] if self.kind == "vllm" else body["input_ids"]
        sampling = SamplingSettings(
            max_tokens=params["max_tokens" if self.kind == "vllm" else "max_new_tokens"],
            temperature=params["temperature"],
            ignore_eos=params["ignore_eos"],
            stop=tuple(params["stop"]),
        )
        n = max(1, params["n"] // 2) if fault == "partial" else params["n"]
        seed = params["seed" if self.kind == "vllm" else "sampling_seed"]
        (samples,) = self.engine.generate([prompt], n, sampling, seed=seed)
        assert 0 <= seed < 1 << 31, "no server takes a larger seed"
        # Neither server gives what it was not asked for.
        if self.kind == "vllm":
            assert body["model"] == "policy"
            choices = [_choice(place, sample, fault) for place, sample in enumerate(samples)]
            for asked, part in (("return_token_ids", "token_ids"), ("logprobs", "logprobs")):
                for choice in choices if not body.get(asked) else ():
                    del choice[part]
            return {"choices": choices + (choices if fault == "duplicate" else [])}
        version = "0" if fault == "stale" else self.version
        found = [_generated(sample, version, fault) for sample in samples]
        for one in found if not body.get("return_logprob") else ():
            del one["meta_info"]["output_token_logprobs"]
        return found


def _choice(index: int, sample: Sample, fault: str) -> dict[str, Any]:
    aborted = fault == "abort" and index == 0
    return {
        "index": index,
        "token_ids": sample.tokens.tolist(),
        "logprobs": {"token_logprobs": sample.logprobs.tolist()[: -1 if fault == "short" else None]},
        "finish_reason": "abort" if aborted else "length" if sample.finish_reason == "length" else "stop",
    }


def _generated(sample: Sample, version: str, fault: str) -> dict[str, Any]:
    pairs = [[float(p), int(t), None] for p, t in zip(sample.logprobs, sample.tokens, strict=True)]
    kind = "length" if sample.finish_reason == "length" else "stop"
    return {
        "text": "",
        "meta_info": {"output_token_logprobs": pairs, "finish_reason": {"type": kind}, "weight_version": version},
    }
