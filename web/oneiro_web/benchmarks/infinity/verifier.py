"""Runs one verifier of webarena-infinity: python -I verifier.py FILE < STATE, prints [passed, reason] as JSON.

A verifier asks a server for `/api/state` by the package `requests`. Here both are played: the state comes from standard
input, so that neither a server nor the package is needed.
"""

from __future__ import annotations

import json
import runpy
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

SERVER = "http://localhost"


def main() -> None:
    state = json.load(sys.stdin)

    def get(url: str, **_: Any) -> SimpleNamespace:
        status = 200 if url == f"{SERVER}/api/state" else 404
        return SimpleNamespace(
            status_code=status, ok=status == 200, text=json.dumps(state), json=lambda: state,
            raise_for_status=lambda: None,
        )  # fmt: skip

    requests = ModuleType("requests")
    vars(requests).update(get=get, RequestException=OSError)
    sys.modules["requests"] = requests
    passed, why = runpy.run_path(sys.argv[1])["verify"](SERVER)
    print(json.dumps([bool(passed), str(why)]))


if __name__ == "__main__":
    main()
