"""WebArena-Verified's evaluators, as far as an answer and the address of the last page go.

`AgentResponseEvaluator` wants the answer as a JSON object with `task_type`, `status` and `retrieved_data`; values are
compared by their type in `results_schema`. `NetworkEventEvaluator` looks at recorded traffic, which is not recorded
here: where it asks for nothing but a page, the last address is compared; the rest is unsupported, by name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

from oneiro.worlds.web.evaluation.result import Checked, shown
from oneiro.worlds.web.evaluation.values import close, dates, distances, durations, money, yes_or_no
from oneiro.worlds.web.tasks import VerifiedCheck

LONGEST_ANSWER = 1 << 16
LONGEST_URL = 2048
MOST_ITEMS = 200
DEGREES = 1e-4
"""How far two coordinates may lie apart."""


def evaluate_verified(checks: Sequence[VerifiedCheck], url: str, answer: str | None) -> list[Checked]:
    """The checks of a Verified task."""
    return [
        response_match(check, answer) if check.evaluator == "AgentResponseEvaluator" else event_match(check, url)
        for check in checks
    ]


def response_match(check: VerifiedCheck, answer: str | None) -> Checked:
    """The answer's task type, status and data."""
    name = check.evaluator
    if answer is None:
        return Checked(name, 0.0, "no answer")
    response = read_response(answer)
    if response is None:
        return Checked(name, 0.0, f"{shown(answer)} is no JSON object with task_type, status and retrieved_data")
    for key in ("task_type", "status"):
        if str(response.get(key)).lower() != str(check.expected.get(key)).lower():
            return Checked(name, 0.0, f"{key} is {shown(response.get(key))}, not {shown(check.expected.get(key))}")
    wanted, given = check.expected.get("retrieved_data"), response.get("retrieved_data")
    if wanted is None and given in (None, []):
        return Checked(name, 1.0, "nothing to retrieve")
    right = _same(wanted, given, check.results_schema or {}, check.ordered)
    return Checked(name, float(right), f"{shown(given)} is {'' if right else 'not '}{shown(wanted)}")


def read_response(answer: str) -> dict[str, Any] | None:
    """The JSON object of an answer, with or without a code fence around it."""
    text = re.sub(r"^\s*```(?:json)?|```\s*$", "", answer[:LONGEST_ANSWER]).strip()
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _same(wanted: Any, given: Any, schema: Mapping[str, Any], ordered: bool) -> bool:
    if schema.get("type") == "array" and isinstance(wanted, list):
        given = given if isinstance(given, list) else [given]
        if len(given) != len(wanted) or len(given) > MOST_ITEMS:
            return False
        items = schema.get("items") or {}
        fits = [[_one_of(want, item, items, ordered) for item in given] for want in wanted]
        return all(row[place] for place, row in enumerate(fits)) if ordered else _pairs_up(fits)
    if isinstance(wanted, dict):
        kinds = schema.get("properties") or {}
        if not isinstance(given, dict):
            return False
        within = DEGREES if schema.get("format") == "coordinates" else 0.0
        return all(
            _near(wanted[key], given.get(key), within)
            if within
            else _one_of(wanted[key], given.get(key), kinds.get(key, {}), ordered)
            for key in wanted
        )
    return _same_value(wanted, given, schema)


def _one_of(wanted: Any, given: Any, schema: Mapping[str, Any], ordered: bool) -> bool:
    """A list where a single value belongs holds alternatives."""
    if isinstance(wanted, list) and schema.get("type") != "array":
        return any(_same(one, given, schema, ordered) for one in wanted)
    return _same(wanted, given, schema, ordered)


def _near(wanted: Any, given: Any, within: float) -> bool:
    try:
        return abs(float(wanted) - float(given)) <= within
    except (TypeError, ValueError):
        return False


def _same_value(wanted: Any, given: Any, schema: Mapping[str, Any]) -> bool:
    if wanted is None or given is None:
        return wanted is given
    if isinstance(given, list | dict):
        return False
    kind, form = schema.get("type"), schema.get("format")
    readers: dict[str, Callable[[str], list[Any]]] = {"duration": durations, "distance": distances, "date": dates}
    if isinstance(form, str) and form in readers:
        one, other = readers[form](str(wanted)), readers[form](str(given))
        return len(other) == 1 and one[:1] == other
    if kind in ("number", "integer"):
        numbers = [money(str(value)) for value in (wanted, given) if not isinstance(value, bool)]
        return len(numbers) == 2 and len(numbers[1]) == 1 and close(numbers[1][0], numbers[0][0])
    if kind == "boolean":
        return yes_or_no(str(wanted)) == yes_or_no(str(given))
    if form == "month":
        return _plain(wanted)[:3] == _plain(given)[:3]
    return _plain(wanted) == _plain(given)


def _plain(value: Any) -> str:
    return " ".join(str(value).casefold().split()).strip(" .'\"").removesuffix("/")


def _pairs_up(fits: Sequence[Sequence[bool]]) -> bool:
    """Whether each row can have a column of its own in which it is true."""
    taken: dict[int, int] = {}

    def place(row: int, tried: set[int]) -> bool:
        for column, fit in enumerate(fits[row]):
            if fit and column not in tried:
                tried.add(column)
                if column not in taken or place(taken[column], tried):
                    taken[column] = row
                    return True
        return False

    return all(place(row, set()) for row in range(len(fits)))


def event_match(check: VerifiedCheck, url: str) -> Checked:
    """The last address, where the check asks for no more than that a page was opened."""
    name, expected = check.evaluator, {key: value for key, value in check.expected.items() if value is not None}
    missing = sorted({*expected} - {"url", "query_params", "http_method", "response_status"})
    if expected.get("http_method", "GET") != "GET":
        missing.append(f"http_method {expected['http_method']}")
    if expected.get("response_status", 200) != 200:
        missing.append(f"response_status {expected['response_status']}")
    if check.should_not_exist:
        missing.append("should_not_exist")
    if (check.model_extra or {}).get("decode_base64_query"):
        missing.append("decode_base64_query")
    wanted = expected.get("url")
    options = [str(one) for one in (wanted if isinstance(wanted, list) else [wanted])]
    if any("{{" in one for one in options):
        missing.append("values taken from other events")
    if missing:
        return Checked(name, 0.0, f"needs recorded traffic: {', '.join(missing)}", unsupported=True)
    right = any(_same_address(one, url[:LONGEST_URL], check) for one in options)
    return Checked(name, float(right), f"{shown(url, 120)} is {'' if right else 'not '}{shown(options, 120)}")


def _same_address(wanted: str, url: str, check: VerifiedCheck) -> bool:
    try:
        given, expected = urlsplit(url), urlsplit(wanted)
        query, wanted_query = parse_qs(given.query, max_num_fields=200), parse_qs(expected.query)
    except ValueError:
        return False
    base = url.split("#")[0].split("?")[0].rstrip("/")
    if wanted.startswith("^"):
        if not re.fullmatch(wanted, base) and not re.fullmatch(wanted, url):
            return False
    else:
        if base != wanted.split("#")[0].split("?")[0].rstrip("/"):
            return False
        wanted_query |= {
            key: value if isinstance(value, list) else [value]
            for key, value in (check.expected.get("query_params") or {}).items()
        }
    ignored = [re.compile(pattern) for pattern in check.ignored_query_params_patterns or ()]

    def kept(values: Mapping[str, list[Any]]) -> dict[str, list[str]]:
        return {
            key: sorted(str(one).strip() for one in value)
            for key, value in values.items()
            if key not in (check.ignored_query_params or ()) and not any(pattern.fullmatch(key) for pattern in ignored)
        }

    return wanted.startswith("^") or kept(query) == kept(wanted_query)
