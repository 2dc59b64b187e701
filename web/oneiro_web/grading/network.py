"""WebArena-Verified's `NetworkEventEvaluator`: what the browser asked a site for, and what it was answered.

Of the requests to the wanted address, by method and referring page, the last one must fit (any, where the check says
so): its query, the fields it sent, its status, and the answer's fields and cookies. A task to open a page looks at the
last page that was opened.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from oneiro_web.grading.result import Checked, UnsupportedCheck, shown
from oneiro_web.grading.typed import is_pattern, same
from oneiro_web.sites.web import Reply
from oneiro_web.tasks import VerifiedCheck
from oneiro_web.traffic import Exchange

MAX_URL_CHARS = 1 << 13  # as much as servers commonly take
KNOWN = frozenset(
    ("url", "http_method", "response_status", "query_params", "headers", "post_data", "response_content",
     "response_cookies")
)  # fmt: skip
NO_ANSWER = -1
"""The status in traces of pages that were left before the answer came; here every request has its answer."""
_STEP = re.compile(r"\.([A-Za-z_][\w-]*)|\['([^']*)'\]|\[(\d+)\]")
_ENCODED = re.compile(r"[A-Za-z0-9_-]{4,}={0,2}")


def event_match(check: VerifiedCheck, url: str, traffic: Sequence[Exchange] | None, navigates: bool) -> Checked:
    """Whether the traffic holds what the check wants. `navigates`: the task is to open a page."""
    name = check.evaluator
    wanted = {key: loosen(value) for key, value in check.expected.items() if value is not None}
    if traffic is None:
        missing = _beyond_an_address(check, wanted)
        if missing:
            return Checked(name, 0.0, f"needs recorded traffic: {', '.join(missing)}", unsupported=True)
        traffic = [Exchange("GET", url, {"accept": "text/html"}, b"", Reply(200, (), b""))]
    try:
        requests = _asked_for(check, wanted, [one for one in traffic if not one.is_asset], navigates)
        if check.should_not_exist:
            return Checked(
                name, float(not requests), f"{len(requests)} requests to {_where(wanted)}, and none was wanted"
            )
        right = any(_fits(check, wanted, one) for one in (requests[-1:] if check.last_event_only else requests))
    except UnsupportedCheck as error:
        return Checked(name, 0.0, str(error), unsupported=True)
    seen = f"{len(requests)} requests to {_where(wanted)}"
    return Checked(name, float(right), f"{seen}, {'as' if right else 'none as'} wanted")


def missing_support(check: VerifiedCheck) -> str | None:
    """What of a check is not known here, whatever the traffic is."""
    unknown = sorted({key for key, value in check.expected.items() if value is not None} - KNOWN)
    return f"{', '.join(unknown)} is not known here" if unknown else None


def loosen(value: Any) -> Any:
    """A pattern in the place of a text with `{{post_id}}`, which only the site knows: any text without a slash fits."""
    if isinstance(value, dict):
        return {loosen(key): loosen(one) for key, one in value.items()}
    if isinstance(value, list):
        return [loosen(one) for one in value]
    if isinstance(value, str) and "{{" in value:
        return f"^{'[^/]+'.join(re.escape(part) for part in re.split(r'{{[^{}]*}}', value))}$"
    return value


def _where(wanted: Mapping[str, Any]) -> str:
    return f"{wanted.get('http_method', 'GET')} {shown(wanted.get('url'), 120)}"


def _beyond_an_address(check: VerifiedCheck, wanted: Mapping[str, Any]) -> list[str]:
    """What of a check cannot be seen in the address of the last page."""
    missing = sorted({*wanted} - {"url", "query_params", "http_method", "response_status"})
    usual = {"http_method": "GET", "response_status": 200}
    missing += [f"{key} {wanted[key]}" for key, value in usual.items() if wanted.get(key, value) != value]
    return missing + ["should_not_exist"] * check.should_not_exist


def _asked_for(
    check: VerifiedCheck, wanted: Mapping[str, Any], traffic: Sequence[Exchange], navigates: bool
) -> list[Exchange]:
    """The requests that a check is about."""
    if missing := missing_support(check):
        raise UnsupportedCheck(missing)
    method = str(wanted.get("http_method", "GET")).upper()
    if navigates and method == "GET":
        return [one for one in traffic if one.is_navigation][-1:]
    places = _alternatives(wanted.get("url"))
    pages = _alternatives((wanted.get("headers") or {}).get("referer"))
    return [
        one
        for one in traffic
        if one.method == method
        and any(_same_place(place, one.url, check) for place in places)
        and (
            not pages
            or "referer" not in one.headers
            or any(_same_place(p, one.headers["referer"], check) for p in pages)
        )
    ]


def _fits(check: VerifiedCheck, wanted: Mapping[str, Any], one: Exchange) -> bool:
    status = wanted.get("response_status", 200)
    query = wanted.get("query_params")
    fields = (check.post_data_schema or {}).get("properties") or {}
    return (
        any(_same_address(place, one.url, check, query) for place in _alternatives(wanted.get("url")))
        and status in (NO_ANSWER, one.reply.status)
        and all(
            any(_same_address(place, one.headers.get("referer", ""), check, None) for place in _alternatives(value))
            if key.lower() == "referer"
            else same(value, one.headers.get(key.lower(), ""), {})
            for key, value in (wanted.get("headers") or {}).items()
        )
        and _same_fields(wanted.get("post_data"), one.sent, fields)
        and _same_fields(wanted.get("response_content"), one.content, {})
        and _same_fields(wanted.get("response_cookies"), one.cookies, {})
    )


# Addresses -----------------------------------------------------------------------------------------------------------


def _alternatives(value: Any) -> list[str]:
    given = value if isinstance(value, list | tuple) else [] if value is None else [value]
    return [str(one) for one in given]


def _taken_apart(url: str, decode: bool) -> tuple[str, dict[str, list[str]]]:
    """An address without its query, and the query, also one that hides in the path."""
    parts = urlsplit(url[:MAX_URL_CHARS])
    query = parse_qs(parts.query, keep_blank_values=True, max_num_fields=500)
    path = parts.path
    if decode:
        kept = []
        for segment in path.split("/"):
            hidden = _decoded(segment)
            query |= parse_qs(hidden, max_num_fields=500)
            kept += [] if hidden else [segment]
        path = "/".join(kept)
    return f"{parts.scheme}://{parts.netloc}{path}".rstrip("/").lower(), query


def _decoded(segment: str) -> str:
    """The query that a segment of a path holds in base 64; '' for other segments."""
    if not _ENCODED.fullmatch(segment):
        return ""
    try:
        text = base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4)).decode()
    except ValueError:
        return ""
    return unquote(text).strip().lstrip("?&") if "=" in text else ""


def _same_place(wanted: str, url: str, check: VerifiedCheck) -> bool:
    """The same address but for the query."""
    try:
        base, _ = _taken_apart(url, check.decode_base64_query)
        if is_pattern(wanted):
            plain = url[:MAX_URL_CHARS].split("#")[0].split("?")[0]
            return any(re.match(wanted, text, re.IGNORECASE) for text in (plain, plain.rstrip("/"), base))
        return base == _taken_apart(wanted, check.decode_base64_query)[0]
    except ValueError:
        return False


def _same_address(wanted: str, url: str, check: VerifiedCheck, more: Mapping[str, Any] | None) -> bool:
    """The same address and query. `more` says what the query is, in place of the address."""
    if not _same_place(wanted, url, check):
        return False
    _, query = _taken_apart(url, check.decode_base64_query)
    expected: Mapping[str, Any] = {} if is_pattern(wanted) else _taken_apart(wanted, check.decode_base64_query)[1]
    expected = {**expected, **(more or {})}
    schemas = (check.query_params_schema or {}).get("properties") or {}
    keys = {*query, *expected} - {*(check.ignored_query_params or ())}
    patterns = check.ignored_query_params_patterns or ()
    return all(
        same(_first(expected.get(key)), _first(query.get(key)), _of_one(schemas.get(key) or {}))
        for key in keys
        if not any(re.search(pattern, key, re.IGNORECASE) for pattern in patterns)
    )


def _first(values: Any) -> str:
    """The first value in order; '' where there is none."""
    given = sorted(str(one) for one in values if one is not None) if isinstance(values, list | tuple) else [values]
    return "" if not given or given[0] is None else str(given[0])


def _of_one(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    return schema.get("items") or {} if schema.get("type") == "array" else schema


# Fields --------------------------------------------------------------------------------------------------------------


def _same_fields(wanted: Mapping[str, Any] | None, given: Mapping[str, Any], schemas: Mapping[str, Any]) -> bool:
    """Whether every wanted field is there; others do not count. None wants a field to be missing."""
    return all(_same_field(value, at(key, given), schemas.get(key) or {}) for key, value in (wanted or {}).items())


def _same_field(wanted: Any, given: Any, schema: Mapping[str, Any]) -> bool:
    if isinstance(wanted, list) and schema.get("type") != "array" and not isinstance(given, list):
        return any(same(one, given, schema) for one in wanted)
    if isinstance(wanted, list):
        return same(wanted, given, schema if schema.get("type") == "array" else {"type": "array", "items": {}})
    return same(wanted, given, schema)


def at(key: str, given: Mapping[str, Any]) -> Any:
    """A field by its name, by a pattern of its name (`$.^...$`), or by a path (`$.note.note`, `$.items[0].name`)."""
    pattern = key.removeprefix("$.")
    if is_pattern(pattern):
        values = [value for name, value in given.items() if re.match(pattern, name)]
        return values[0] if len(values) == 1 else None
    if not key.startswith("$"):
        return given.get(key)
    value: Any = given
    place = 1
    while place < len(key):
        step = _STEP.match(key, place)
        if step is None:
            raise UnsupportedCheck(f"the path {shown(key)} is of no known form")
        place = step.end()
        if step[3] is not None:
            value = value[int(step[3])] if isinstance(value, list) and int(step[3]) < len(value) else None
        else:
            value = value.get(step[1] or step[2]) if isinstance(value, Mapping) else None
    return value
