"""Tasks: WebArena's files as they are (812, Lite's 165, Verified's 812), and our own, which carry a `spec`.

    tasks = load_tasks(Path("test.raw.json"), Places({"reddit": "http://127.0.0.1:9999", ...}))

`__REDDIT__` and the like become the given addresses. Fields that are not known are kept (`task.model_extra`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError, field_validator, model_validator

from oneiro_web.errors import WebError
from oneiro_web.urls import PUBLIC, Places

LARGEST_FILE = 64 << 20
_WITHOUT_LOG_IN = ("map", "wikipedia", "homepage")
_PLACEHOLDER = re.compile(r"__([A-Z][A-Z_]*[A-Z])__")


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow")


class _OwnPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


# WebArena's part -----------------------------------------------------------------------------------------------------


class Contents(_Part):
    """What a text must be or hold. `must_include` and `required_values` entries may be ` |OR| ` alternatives."""

    exact_match: str | None = None
    must_include: tuple[str, ...] | None = None
    must_exclude: tuple[str, ...] | None = None
    one_of: tuple[str, ...] | None = None
    required_values: tuple[str, ...] | None = None
    fuzzy_match: tuple[str, ...] | str | None = None
    """References for a judge; the text `N/A` for a task that cannot be done."""

    @field_validator("must_include", "must_exclude", "one_of", "required_values", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value  # task 81 of Lite

    @model_validator(mode="after")
    def _something(self) -> Contents:
        if not self.model_fields_set:
            raise ValueError("says nothing about the text")
        return self


class PageTarget(_Part):
    """A place on a page and what it must hold."""

    url: str
    """`last` for where the agent ended, an address, or `func:...`."""
    locator: str = ""
    """'' for the whole page, `document.querySelector(...)...`, or `func:...`."""
    prep_actions: tuple[str, ...] = ()
    """Scripts that are run on the page first, such as a click that opens a part of it."""
    required_contents: Contents


class Evaluation(_Part):
    """WebArena's `eval`."""

    eval_types: tuple[Literal["string_match", "url_match", "program_html"], ...]
    reference_answers: Contents | None = None
    reference_url: str | None = None
    """Alternatives are joined by ` |OR| `."""
    url_note: Literal["GOLD in PRED", "EXACT", "SAME PAGE"] | None = None
    """WebArena's two rules, and that of our own tasks."""
    program_html: tuple[PageTarget, ...] = ()
    string_note: str = ""
    """Why a task cannot be done."""

    @model_validator(mode="after")
    def _complete(self) -> Evaluation:
        if "string_match" in self.eval_types and self.reference_answers is None:
            raise ValueError("string_match has no reference_answers")
        if "url_match" in self.eval_types and not self.reference_url:
            raise ValueError("url_match has no reference_url")
        if "program_html" in self.eval_types and not self.program_html:
            raise ValueError("program_html has no targets")
        return self


class VerifiedCheck(_Part):
    """One evaluator of WebArena-Verified."""

    evaluator: Literal["AgentResponseEvaluator", "NetworkEventEvaluator"]
    expected: dict[str, Any]
    results_schema: dict[str, Any] | None = None
    ordered: bool = False
    ignored_query_params: tuple[str, ...] | None = None
    ignored_query_params_patterns: tuple[str, ...] | None = None
    query_params_schema: dict[str, Any] | None = None
    post_data_schema: dict[str, Any] | None = None
    decode_base64_query: bool = False
    """A part of the path may hold a query."""
    last_event_only: bool = True
    """Of the requests to the address, the last one must fit; otherwise any."""
    should_not_exist: bool = False


# Our own part --------------------------------------------------------------------------------------------------------

Value = str | int | float | bool | None


class AnswerCheck(_OwnPart):
    """The answer is this value, read as its type; more than one value of the type in an answer is wrong."""

    kind: Literal["answer"] = "answer"
    type: Literal["number", "money", "duration", "distance", "date", "names", "yes_no", "text", "na"]
    expected: Value | tuple[str, ...] = None
    """A number (money in units, durations in seconds, distances in metres), or a text that is read as an answer is."""
    tolerance: float = 0.0
    ordered: bool = False
    """`names`: the order counts."""


class DatabaseCheck(_OwnPart):
    """A query on a site's database gives these rows at the end."""

    kind: Literal["db_check"] = "db_check"
    site: str
    query: str
    rows: tuple[tuple[Value, ...], ...]
    ordered: bool = False


class DatabaseGuard(_OwnPart):
    """No database differs from how the episode began, except where it is allowed. Bookkeeping tables are free."""

    kind: Literal["db_guard"] = "db_guard"
    allow: dict[str, dict[str, str | None]] = {}
    """Site -> table -> SQL condition on the rows that may differ, None for all rows. `table(column, ...)`: rows that
    were there stay, and differ in these columns alone.
    """


Check = Annotated[AnswerCheck | DatabaseCheck | DatabaseGuard, Discriminator("kind")]


class Spec(_OwnPart):
    """What our own tasks add to WebArena's format."""

    template_id: str
    content: int = 0
    """The seed of the sites' content."""
    slots: dict[str, Any] = {}
    skills: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    """Multiplied with what `eval` says."""
    oracle_length: int | None = None
    """Actions that the oracle takes."""


# A task --------------------------------------------------------------------------------------------------------------


Graders = Annotated[
    Annotated[Evaluation, Tag("webarena")] | Annotated[tuple[VerifiedCheck, ...], Tag("verified")],
    Discriminator(lambda value: "verified" if isinstance(value, list | tuple) else "webarena"),
]


class Task(_Part):
    """One task, from whichever file."""

    task_id: int | str
    sites: tuple[str, ...] = Field(min_length=1)
    intent: str
    start_urls: tuple[str, ...] = Field(min_length=1)
    """One tab each, the first in front."""
    log_ins: tuple[str, ...] = ()
    """Sites at which somebody is logged in when the task begins."""
    intent_template: str = ""
    intent_template_id: int | str | None = None
    instantiation_dict: dict[str, Any] = {}
    eval: Graders | None = None
    spec: Spec | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_files(cls, raw: Any) -> Any:
        if not isinstance(raw, Mapping):
            raise ValueError("is not an object")
        raw = dict(raw)
        if "start_urls" not in raw and isinstance(raw.get("start_url"), str):
            raw["start_urls"] = [url.strip() for url in raw.pop("start_url").split(" |AND| ")]
        if "log_ins" not in raw:
            raw["log_ins"] = _log_ins(raw)
        return raw

    @model_validator(mode="after")
    def _graded(self) -> Task:
        if not self.eval and not (self.spec and self.spec.checks):
            raise ValueError("has nothing to be graded by")
        return self


def _log_ins(raw: Mapping[str, Any]) -> list[str]:
    """Log-ins by the name of the storage state (`./.auth/gitlab.reddit_state.json`); without one, at all sites."""
    if "storage_state" not in raw:
        return [site for site in raw.get("sites") or [] if site not in _WITHOUT_LOG_IN]
    state = raw["storage_state"]
    if state is None:
        return []
    match = re.fullmatch(r"(?:.*/)?([a-z_.]+)_state\.json", state) if isinstance(state, str) else None
    if match is None:
        raise ValueError(f"storage_state {state!r} names no sites")
    return match[1].split(".")


def read_task(raw: Any, places: Places | None = None, where: str = "task") -> Task:
    """A task from its JSON object; one line says what is wrong with a damaged one."""
    number = raw.get("task_id", "without id") if isinstance(raw, Mapping) else "without id"
    where = f"{where}: task {number}"
    try:
        return Task.model_validate(_placed(raw, places or Places(), where))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"] if part not in ("webarena", "verified"))
        raise WebError(
            f"{where}: {place + ': ' if place else ''}{first['msg'].removeprefix('Value error, ')}"
        ) from None


def load_tasks(path: Path, places: Places | None = None) -> list[Task]:
    """The tasks of a JSON file: a list of them, or one."""
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise WebError(f"{path}: larger than {LARGEST_FILE >> 20} MB, no file of tasks")
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise WebError(f"{path}: not readable as JSON ({str(error).splitlines()[0]})") from None
    return [read_task(one, places, str(path)) for one in (raw if isinstance(raw, list) else [raw])]


def _placed(value: Any, places: Places, where: str) -> Any:
    """`value` with `__SITE__` replaced by the site's address in every text."""
    if isinstance(value, str):
        return _PLACEHOLDER.sub(lambda match: _base(match, places, where), value)
    if isinstance(value, list):
        return [_placed(one, places, where) for one in value]
    if isinstance(value, dict):
        return {key: _placed(one, places, where) for key, one in value.items()}
    return value


def _base(match: re.Match[str], places: Places, where: str) -> str:
    site = match[1].lower()
    if site == "ssh_host":  # where GitLab's repositories are cloned from
        return urlsplit(places.bases.get("gitlab", PUBLIC["gitlab"])).hostname or ""
    if site not in PUBLIC:  # `__last_url__` and `__page__` are lower case; other words are the task's own
        return match[0]
    if site not in places.bases:
        raise WebError(f"{where}: needs the site {site}; give its address")
    return places.bases[site].rstrip("/")
