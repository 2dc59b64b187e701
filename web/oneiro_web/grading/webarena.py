"""WebArena's `string_match`, `url_match` and `program_html`, as released, and as two copies changed them.

Pages are read beside the agent's own tabs; nothing from a task file is ever run. `func:` texts name one of a few
helpers, which the caller may give (`Helper`); those that need nothing but the page are built in.
"""

from __future__ import annotations

import html
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from oneiro_web.browsers.base import Session
from oneiro_web.grading.judge import Judge
from oneiro_web.grading.result import Checked, UnsupportedCheck, shown
from oneiro_web.grading.tokens import tokens
from oneiro_web.grading.values import agrees, is_na
from oneiro_web.tasks import Contents, Evaluation, PageTarget
from oneiro_web.urls import page_of

OR = " |OR| "


@dataclass(frozen=True)
class Variant:
    """The points on which releases of the evaluators differ."""

    strips: bool
    """Blanks around an answer do not count."""
    alternatives: bool
    """` |OR| ` in the references of answers (it always counts in those of pages)."""
    token_rule: str
    """When a reference must be a whole word: `character` (the only reference, of one character), `word` (any word)."""
    joined: bool
    """One judgement on all fuzzy references instead of one for each."""
    url_rule: str
    """The rule of `url_match` without a note."""
    url_parts: bool
    """`GOLD in PRED` compares host and path, and the query by keys; else the texts."""
    unescapes: bool
    """HTML entities in pages are resolved."""


VARIANTS: Mapping[str, Variant] = {
    "webarena": Variant(True, False, "character", False, "GOLD in PRED", True, True),
    "rlvr": Variant(False, True, "character", False, "EXACT", False, False),
    "lite": Variant(False, True, "word", True, "EXACT", False, False),
}


@dataclass(frozen=True)
class PageAt:
    """What a helper sees: the page that a check is about."""

    session: Session
    url: str | None
    """None for the tab in front."""

    @property
    def html(self) -> str:
        """Its document."""
        return self.session.html() if self.url is None else self.session.visit(self.url).html


Helper = Callable[..., str]
"""A function of a `PageAt` and the texts in the brackets of a `func:`."""


def evaluate_webarena(
    evaluation: Evaluation,
    intent: str,
    session: Session,
    answer: str | None,
    variant: Variant,
    judge: Judge | None,
    helpers: Mapping[str, Helper],
) -> list[Checked]:
    """The checks of WebArena's `eval`."""
    checked: list[Checked] = []
    for kind in evaluation.eval_types:
        if kind == "string_match":
            checked += string_match(evaluation, intent, answer, variant, judge)
        elif kind == "url_match":
            checked.append(url_match(evaluation, session.url, variant))
        else:
            checked += [
                page_match(target, intent, session, variant, judge, helpers) for target in evaluation.program_html
            ]
    return checked


def missing_support(evaluation: Evaluation, helpers: Collection[str]) -> str | None:
    """What no browser could check, whatever its pages are; `helpers` are those that the caller will give."""
    references = evaluation.reference_answers
    if references is not None and references.model_extra:
        return f"reference_answers.{next(iter(references.model_extra))} is no known kind of reference"
    for target in evaluation.program_html:
        for text in (target.url, target.locator):
            call = _CALL.fullmatch(text)
            if text.startswith("func:") and (call is None or call[1] not in {*HELPERS, *helpers}):
                return f"{shown(text)} calls no helper that is given here"
        if target.locator.strip() and not target.locator.startswith((*SCRIPTS, "func:")):
            return f"the locator {shown(target.locator)} is of no known form"
        if not {*_PAGE_KINDS} & target.required_contents.model_fields_set:
            return f"required_contents has no known kind in {sorted(target.required_contents.model_fields_set)}"
    return None


# Answers -------------------------------------------------------------------------------------------------------------


def clean(text: str, variant: Variant) -> str:
    """Lower case, without one pair of quotes around it."""
    text = text.strip() if variant.strips else text
    for quote in "'\"":
        if text.startswith(quote) and text.endswith(quote):
            text = text[1:-1]
            break
    return text.lower()


def string_match(
    evaluation: Evaluation, intent: str, answer: str | None, variant: Variant, judge: Judge | None
) -> list[Checked]:
    """The answer against each reference. An N/A that is not said plainly takes the place of all before it."""
    references = evaluation.reference_answers
    assert references is not None
    if answer is None:
        return [Checked("string_match", 0.0, "no answer")]
    given = clean(answer, variant)
    checked: list[Checked] = []
    named = [kind for kind in Contents.model_fields if kind in references.model_fields_set]
    for name in [*named, *(references.model_extra or {})]:
        if name == "fuzzy_match" and references.fuzzy_match == "N/A":
            plain = clean("N/A", variant) == clean(given, variant)
            if plain and all(check.score == 1 for check in checked):
                checked.append(Checked("string_match.fuzzy_match", 1.0, "the answer is N/A"))
            else:
                checked = [_reason_match(evaluation.string_note, intent, given, judge)]
        else:
            checked += _contents(references, name, given, "string_match", intent, variant, judge, variant.alternatives)
    return checked


def _reason_match(note: str, intent: str, given: str, judge: Judge | None) -> Checked:
    name = "string_match.fuzzy_match"
    if judge is None:
        return Checked(
            name, float(is_na(given)), f"N/A expected, {shown(given)} given; no judge of reasons", typed=True
        )
    question = f"{intent}\n(This cannot be done. Does the student give the reason?)"
    right = bool(given.strip()) and judge(question, note, given)
    return Checked(name, float(right), f"judged: is {shown(given)} the reason {shown(note)}")


def _contents(
    wanted: Contents,
    name: str,
    given: str,
    where: str,
    intent: str,
    variant: Variant,
    judge: Judge | None,
    either: bool,
) -> Iterator[Checked]:
    """One kind of reference against a text."""
    name_of, value = f"{where}.{name}", getattr(wanted, name, None)
    if value is None:
        return
    if name == "exact_match":
        right = clean(given, variant) == clean(value, variant)
        yield Checked(name_of, float(right), f"{shown(given)} is {'' if right else 'not '}{shown(value)}")
    elif name == "must_include":
        for one in value:
            options = one.split(OR) if either else [one]
            single = len(value) == 1 and where == "string_match"
            right = any(_included(option, given, variant, single) for option in options)
            yield Checked(name_of, float(right), f"{shown(one)} is {'' if right else 'not '}in {shown(given)}")
    elif name == "must_exclude":
        for one in value:
            right = not _included(one, given, variant, single=True)
            yield Checked(name_of, float(right), f"{shown(one)} is {'not ' if right else ''}in {shown(given)}")
    elif name == "one_of":
        right = any(clean(one, variant) in given for one in value)
        yield Checked(name_of, float(right), f"{'one' if right else 'none'} of {shown(value)} is in {shown(given)}")
    elif name == "required_values":
        for one in value:
            right = any(_satisfies(given, option) for option in one.split(OR))
            yield Checked(name_of, float(right), f"{shown(given)} {'fulfils' if right else 'fails'} {shown(one)}")
    elif name == "fuzzy_match":
        yield from _fuzzy([value] if isinstance(value, str) else list(value), given, name_of, intent, variant, judge)
    else:
        yield Checked(name_of, 0.0, "no such kind of reference", unsupported=True)


def _included(reference: str, given: str, variant: Variant, single: bool) -> bool:
    reference, given = clean(reference, variant), clean(given, variant)
    if variant.token_rule == "word" and len(tokens(reference)) == 1:
        words = tokens(given)
        return reference in words or any(reference in word.split("/") for word in words)
    if single and variant.token_rule == "character" and len(reference) == 1 and len(tokens(reference)) == 1:
        return reference in tokens(given)
    return reference in given


def _satisfies(given: str, inequality: str) -> bool:
    """A whole number against `>= 300`."""
    match = re.fullmatch(r"\s*(<=|>=|==|<|>)\s*(-?\d+(?:\.\d+)?)\s*", inequality)
    number = given.strip().replace(",", "")
    if match is None or not re.fullmatch(r"-?\d{1,15}", number):
        return False
    left, right = float(number), float(match[2])
    return {"<=": left <= right, ">=": left >= right, "==": left == right, "<": left < right, ">": left > right}[
        match[1]
    ]


def _fuzzy(
    references: list[str], given: str, name: str, intent: str, variant: Variant, judge: Judge | None
) -> Iterator[Checked]:
    if judge is None:
        for reference, right in zip(references, agrees(references, given), strict=True):
            compared = f"typed comparison, no judge: {shown(given)} {'gives' if right else 'does not give'}"
            yield Checked(name, float(right), f"{compared} {shown(reference)}", typed=True)
        return
    for reference in [", ".join(references)] if variant.joined else references:
        right = bool(given.strip()) and judge(intent, reference, given)
        yield Checked(
            name, float(right), f"judged: {shown(given)} {'gives' if right else 'does not give'} {shown(reference)}"
        )


# Addresses -----------------------------------------------------------------------------------------------------------


def url_match(evaluation: Evaluation, url: str, variant: Variant) -> Checked:
    """The address of the tab in front against the reference and its alternatives."""
    wanted = (evaluation.reference_url or "").split(OR)
    rule = evaluation.url_note or variant.url_rule
    if rule == "SAME PAGE":
        right = any(same_page(one, url) for one in wanted)
    elif rule == "EXACT":
        right = _one_slash_less(url) in [_one_slash_less(one) for one in wanted]
    elif variant.url_parts:
        right = _parts_match([one.rstrip("/") for one in wanted], url.rstrip("/"))
    else:
        right = any(_one_slash_less(one) in _one_slash_less(url) for one in wanted)
    return Checked("url_match", float(right), f"{shown(url, 120)} {'matches' if right else 'does not match'} {rule}")


FREE = re.compile(r"p=1|sort=.*")
"""What may be in a query that does not ask for it: the first page of a list, and any order."""


def same_page(wanted: str, url: str) -> bool:
    """The rule of our own tasks: the same host and path, and the same query as the site reads it."""
    one, other = page_of(wanted), page_of(url)
    if one is None or other is None or one[:3] != other[:3]:
        return False
    asked, query = one[3], other[3]
    more = [f"{key}={value}" for key, value in query.items() if key not in asked]
    return asked.items() <= query.items() and all(FREE.fullmatch(pair) for pair in more)


def _one_slash_less(url: str) -> str:
    return url.replace("localhost", "127.0.0.1").removesuffix("/")


def _parts_match(wanted: list[str], url: str) -> bool:
    """Some host and path lies in the address, and of each key in any reference some value is in its query."""
    base, query = _base_and_query(url)
    bases, queries = [], defaultdict(set)
    for one in wanted:
        one_base, one_query = _base_and_query(one)
        bases.append(one_base)
        for key, values in one_query.items():
            queries[key].update(values)
    return any(one in base for one in bases) and all(
        not values.isdisjoint(query.get(key, ())) for key, values in queries.items()
    )


def _base_and_query(url: str) -> tuple[str, dict[str, list[str]]]:
    try:
        parts = urlsplit(url)
        return parts.netloc + parts.path, parse_qs(parts.query, max_num_fields=1000)
    except ValueError:
        return url, {}


# Pages ---------------------------------------------------------------------------------------------------------------


def page_match(
    target: PageTarget,
    intent: str,
    session: Session,
    variant: Variant,
    judge: Judge | None,
    helpers: Mapping[str, Helper],
) -> Checked:
    """A place on a page against what it must hold."""
    name = "program_html"
    try:
        url = _target_url(target.url, session, helpers)
        if url is None:
            for script in target.prep_actions:
                session.locate(script)
        text = _target_text(target.locator, session, url, helpers)
    except UnsupportedCheck as missing:
        return Checked(name, 0.0, str(missing), unsupported=True)
    if variant.unescapes:
        text = html.unescape(text)
    wanted = target.required_contents
    kind = next((kind for kind in _PAGE_KINDS if getattr(wanted, kind) is not None), "")
    if not kind:
        return Checked(
            name, 0.0, f"no known kind of contents in {shown(sorted(wanted.model_fields_set))}", unsupported=True
        )
    checks = list(_contents(wanted, kind, text, name, intent, variant, judge, either=True))
    wrong = next((check for check in checks if check.score != 1), checks[0] if checks else None)
    if wrong is None:
        return Checked(name, 1.0, "nothing is asked of the page")
    skipped = "; prep_actions not run" if target.prep_actions and url is not None else ""
    return Checked(
        wrong.name,
        min(check.score for check in checks),
        f"{shown(url or 'last', 90)}: {wrong.reason}{skipped}",
        wrong.typed,
    )


SCRIPTS = ("document.", "[...document.")
_PAGE_KINDS = ("exact_match", "must_include", "must_exclude", "required_values", "fuzzy_match")


def _target_url(url: str, session: Session, helpers: Mapping[str, Helper]) -> str | None:
    if url.startswith("func:"):
        url = call_helper(url, PageAt(session, None), helpers)
    return None if url == "last" else url


def _target_text(locator: str, session: Session, url: str | None, helpers: Mapping[str, Helper]) -> str:
    if not locator.strip():
        return PageAt(session, url).html
    if locator.startswith(SCRIPTS):
        return session.locate(locator, url)
    if locator.startswith("func:"):
        return call_helper(locator, PageAt(session, url), helpers)
    raise UnsupportedCheck(f"the locator {shown(locator)} is of no known form")


_CALL = re.compile(r"func:\s*([a-z_][a-z0-9_]*)\(\s*((?:(?:__page__|'[^'\\]*'|\"[^\"\\]*\")\s*(?:,\s*|(?=\))))*)\)\s*")
_ARGUMENT = re.compile(r"__page__|'([^'\\]*)'|\"([^\"\\]*)\"")


def call_helper(text: str, page: PageAt, helpers: Mapping[str, Helper]) -> str:
    """`func:name('a', __page__)`: a known helper with plain texts; `__last_url__` is where the agent ended."""
    match = _CALL.fullmatch(text)
    if match is None:
        raise UnsupportedCheck(f"{shown(text)} is no call of a helper")
    helper = {**HELPERS, **helpers}.get(match[1])
    if helper is None:
        known = "is given by nobody" if match[1] in SHOP_HELPERS else "is unknown"
        raise UnsupportedCheck(f"the helper {match[1]} {known}")
    arguments = [
        page.session.url if (value := argument[1] or argument[2] or "") == "__last_url__" else value
        for argument in _ARGUMENT.finditer(match[2])
        if argument[0] != "__page__"
    ]
    return helper(page, *arguments)


def reddit_get_post_url(page: PageAt, url: str) -> str:
    """The post that an address below it belongs to; other addresses as they are."""
    parts = urlsplit(url)
    path = parts.path.split("/")
    return f"{parts.scheme}://{parts.netloc}/f/{path[2]}/{path[3]}/" if len(path) > 3 and path[1] == "f" else url


def gitlab_get_project_memeber_role(page: PageAt, account: str) -> str:
    """The role of an account on a page of members; '' if it is not there. (The name is WebArena's.)"""
    from selectolax.lexbor import LexborHTMLParser

    tree = LexborHTMLParser(page.html)
    accounts = [node.text().strip() for node in tree.css("td[data-label='Account'] span.gl-avatar-labeled-sublabel")]
    roles = [node.text().strip() for node in tree.css("td.col-max-role span")]
    place = accounts.index(f"@{account}") if f"@{account}" in accounts else len(roles)
    return roles[place] if place < len(roles) else ""


HELPERS: Mapping[str, Helper] = {
    "reddit_get_post_url": reddit_get_post_url,
    "gitlab_get_project_memeber_role": gitlab_get_project_memeber_role,
}
"""Helpers that need the page alone."""
SHOP_HELPERS = (
    "shopping_get_latest_order_url",
    "shopping_get_sku_latest_review_author",
    "shopping_get_sku_latest_review_rating",
)
"""The others that the public files use: they ask the shop, so whoever serves it gives them."""
