"""Small deliberate errors in a module, each of which some test should notice.

A mutant is one change of the syntax tree: a comparison, sign, constant, argument, guard or statement. Annotations,
texts, assertions (`zip`'s `strict` is one) and the bounds of settings are left alone: no result depends on them. Nor on
how numbers lie in memory, on names of threads, on what is said on the way, on how much is computed at once, and on
which of two kernels for the same step is used. Defaults of settings and of seeds are choices, not computations.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
NAMES = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "any": "all", "all": "any"}
STEPS = {"detach", "clone", "float", "abs", "exp", "neg", "neg_", "square", "sqrt", "copy"}
"""Methods without arguments whose result stands in for the value they are called on."""
BOUNDS = {"ge", "gt", "le", "lt", "min_length", "max_length", "description"}
"""What a settings class allows, not what it does."""
INERT = {
    "device", "strict", "set_to_none", "thread_name_prefix", "show_progress", "fused", "use_reentrant", "mmap",
    "mmap_mode", "compression", "advance", "repr", "stacklevel", "encoding",
}  # fmt: skip
"""Where a tensor lies, of which a CPU has one place; what only asserts; what only saves memory, room or time; what only
moves a progress bar or shows in a message; and UTF-8, which is what files are read as anyway."""
LEFT = BOUNDS | INERT
SYMMETRIC = {
    "transpose",
    "movedim",
    "minimum",
    "maximum",
    "min",
    "max",
    "logical_or",
    "logical_and",
    "isinstance",
    "suppress",
}
"""Functions whose first two arguments may change places, or never can."""
AXES = {
    "softmax", "log_softmax", "logsumexp", "sum", "mean", "cumsum", "argmax", "sort", "topk", "unflatten", "flatten",
}  # fmt: skip
"""Functions that take an axis. One that is counted from the end is, of two, the one counted from the start; an axis
that is wrong is the other mutant of the same number."""
ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
"""A clock is never seen at its very bound."""
CHOSEN = ("Settings", "Recipe", "Config", "BaseModel")
"""How the names of classes end, or those of their bases, whose fields are what somebody may choose."""
AT_ONCE = re.compile("CHUNK|AT_ONCE|CACHED|AHEAD")
"""In the name of a constant: how much is computed, read or kept at once, which is speed and memory."""
HAIR = 1e-6
"""What is smaller only keeps a division by zero away or tells equal numbers: twice as much does so as well."""
ALIKE = re.compile(r"(self\.)?kv_cache\[0\]\[0\]\.(shape|dtype|device)")
"""Keys and values of all layers are alike in these: which of them is asked is the same."""
UNUSED = (ast.Import, ast.ImportFrom, ast.Assert, ast.Global, ast.Nonlocal)


@dataclass(frozen=True)
class Mutant:
    """One change. `where` and `change` name it without line numbers, so that it is known again after other edits."""

    path: str
    line: int
    lines: range
    """Those of the statement up to the change: whoever runs the change runs one of them."""
    scope: str
    change: str
    tree: ast.Module

    @property
    def where(self) -> str:
        return f"{self.path}::{self.scope}" if self.scope else self.path


Edit = tuple[str, Callable[[], None], Callable[[], None]]
"""What is changed, in words; the function that does it; the one that takes it back."""


def mutants_of(path: Path, shown: str) -> Iterator[Mutant]:
    """Every mutant of a file, in the order of its lines. A tree is only valid until the next one is asked for."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for statement, scope in statements(tree, ""):
        own = [statement, *(node for child in parts(statement) for node in expressions(child))]
        before = brief(statement)
        for node in own:
            for words, do, undo in [*edits(node)] if node is not statement else [*statement_edits(statement)]:
                do()
                after = brief(statement)
                first, last = getattr(node, "lineno", statement.lineno), getattr(node, "end_lineno", statement.lineno)
                if after != before:
                    lines = range(statement.lineno, (last or first) + 1)
                    if isinstance(statement, ast.FunctionDef):  # a default takes effect where the function is called
                        lines = range(statement.body[0].lineno, (statement.end_lineno or first) + 1)
                    yield Mutant(shown, first, lines, scope, f"{words}: {before} -> {after}", tree)
                undo()


def brief(statement: ast.stmt) -> str:
    """A statement on one line, without the statements inside it."""
    shallow = copy.copy(statement)
    for name in ("body", "orelse", "finalbody", "handlers"):
        if isinstance(getattr(shallow, name, None), list):
            setattr(shallow, name, [ast.Pass()] if name == "body" else [])
    return " ".join(ast.unparse(ast.fix_missing_locations(shallow)).removesuffix("pass").split())


def statements(node: ast.AST, scope: str) -> Iterator[tuple[ast.stmt, str]]:
    """Every statement with the dotted name of what it stands in."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            inside = f"{scope}.{child.name}".lstrip(".")
            yield child, inside
            yield from statements(child, inside)
        elif isinstance(child, UNUSED) or typing_only(child) or is_chosen(node, child) or is_size(child):
            continue
        elif isinstance(child, ast.stmt) and not is_told(child):
            yield child, scope
            yield from statements(child, scope)
        elif isinstance(child, ast.ExceptHandler | ast.match_case):
            yield from statements(child, scope)


def typing_only(statement: ast.AST) -> bool:
    return isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING"


def is_chosen(node: ast.AST, child: ast.AST) -> bool:
    """Whether `child` is a field of settings: its default is a choice."""
    if not isinstance(node, ast.ClassDef) or not isinstance(child, ast.AnnAssign):
        return False
    return any(name.endswith(CHOSEN) for name in (node.name, *map(ast.unparse, node.bases)))


def is_size(statement: ast.AST) -> bool:
    """Whether it is a constant that says how much is done at once."""
    return isinstance(statement, ast.Assign) and bool(AT_ONCE.search(ast.unparse(statement.targets[0])))


def is_told(node: ast.AST) -> bool:
    """What only tells whoever waits how far the work is, or prints a line: a call, or a statement that is one."""
    if isinstance(node, ast.Expr):  # `advance(1)` by itself moves a bar; where its value is used it is another function
        return is_told(node.value) or ast.unparse(node.value).startswith("advance(")
    if not isinstance(node, ast.Call):
        return False
    of_bar = isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == "bar"
    return of_bar or called(node) in ("say", "progress")


def parts(statement: ast.stmt) -> Iterator[ast.expr]:
    """The expressions of a statement itself: no annotation, no decorator, no text in a raise, no statement inside."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        places = [*statement.args.posonlyargs, *statement.args.args]
        given = [*zip(places[::-1], statement.args.defaults[::-1], strict=False)][::-1]
        given += [*zip(statement.args.kwonlyargs, statement.args.kw_defaults, strict=True)]
        yield from (default for place, default in given if default is not None and place.arg != "seed")
    elif isinstance(statement, ast.AnnAssign):
        yield from [statement.value] if statement.value is not None else []
    elif not isinstance(statement, ast.ClassDef | ast.Raise):
        for child in ast.iter_child_nodes(statement):
            if isinstance(child, ast.expr):
                yield child
            elif isinstance(child, ast.withitem):
                yield child.context_expr


def expressions(node: ast.AST) -> Iterator[ast.AST]:
    """A node and all inside it, without texts and bounds."""
    if isinstance(node, ast.JoinedStr | ast.arguments) or is_told(node):
        return
    if isinstance(node, ast.keyword) and node.arg in LEFT:
        return
    if isinstance(node, ast.Attribute) and ALIKE.fullmatch(ast.unparse(node)):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        if not is_axis(node, child):
            yield from expressions(child)
        else:
            yield child.operand  # type: ignore[attr-defined]


def is_axis(node: ast.AST, child: ast.AST) -> bool:
    """Whether `child` is a -1 that names an axis in the call `node`, or its keyword `dim`."""
    if ast.unparse(child) != "-1":
        return False
    if isinstance(node, ast.keyword):
        return node.arg in ("dim", "axis")
    return isinstance(node, ast.Call) and called(node) in AXES


# What may be changed --------------------------------------------------------------------------------------------------


def statement_edits(statement: ast.stmt) -> Iterator[Edit]:
    if isinstance(statement, ast.Raise | ast.AugAssign) or is_action(statement):
        yield from vanish(statement)
    if isinstance(statement, ast.Return) and statement.value is not None and not is_nothing(statement.value):
        yield attribute("return None", statement, "value", ast.Constant(None))
    if isinstance(statement, ast.If | ast.While):
        yield attribute("negate", statement, "test", ast.UnaryOp(ast.Not(), statement.test))
    if isinstance(statement, ast.Continue):
        yield become("break instead", statement, ast.Break())
    if isinstance(statement, ast.AugAssign) and type(statement.op) in ARITHMETIC:
        yield attribute("arithmetic", statement, "op", ARITHMETIC[type(statement.op)]())


def is_action(statement: ast.stmt) -> bool:
    """A call for its effect, or a value put into something."""
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call)
    return isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Attribute | ast.Subscript)


def vanish(statement: ast.stmt) -> Iterator[Edit]:
    yield become("drop", statement, ast.Pass())


def become(words: str, statement: ast.stmt, other: ast.stmt) -> Edit:
    """Turn a statement into another in place."""
    kind, fields = type(statement), dict(vars(statement))
    places = {name: fields[name] for name in ("lineno", "col_offset", "end_lineno", "end_col_offset")}

    def do() -> None:
        vars(statement).clear()
        statement.__class__ = type(other)  # type: ignore[assignment]
        vars(statement).update(vars(other) | places)

    def undo() -> None:
        vars(statement).clear()
        statement.__class__ = kind  # type: ignore[assignment]
        vars(statement).update(fields)

    return words, do, undo


def attribute(words: str, node: ast.AST, name: str, value: object) -> Edit:
    before = getattr(node, name)
    return words, lambda: setattr(node, name, value), lambda: setattr(node, name, before)


def replaced(words: str, node: ast.AST, other: ast.AST) -> Edit:
    """Turn an expression into another in place; `other` may be a part of it."""
    kind, fields, new_kind, new_fields = type(node), dict(vars(node)), type(other), dict(vars(other))

    def do() -> None:
        vars(node).clear()
        node.__class__ = new_kind
        vars(node).update(fields_at(new_fields, fields))

    def undo() -> None:
        vars(node).clear()
        node.__class__ = kind
        vars(node).update(fields)

    return words, do, undo


def fields_at(fields: dict[str, object], place: dict[str, object]) -> dict[str, object]:
    return {**fields, **{name: place[name] for name in ("lineno", "col_offset") if name in place}}


def edits(node: ast.AST) -> Iterator[Edit]:
    match node:
        case ast.Compare():
            for place, op in enumerate(node.ops):
                if isinstance(op, ORDER) and "monotonic()" in ast.unparse(node):
                    continue
                others = [*node.ops]
                others[place] = COMPARISONS[type(op)]()
                yield attribute("comparison", node, "ops", others)
        case ast.BinOp() if type(node.op) in ARITHMETIC and not is_text(node):
            yield attribute("arithmetic", node, "op", ARITHMETIC[type(node.op)]())
            yield replaced("drop a term", node, node.left)
        case ast.BoolOp():
            yield attribute("and/or", node, "op", ast.Or() if isinstance(node.op, ast.And) else ast.And())
            for place in range(len(node.values)):
                rest = node.values[:place] + node.values[place + 1 :]
                yield replaced("drop a condition", node, rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest))
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert()):
            yield replaced("drop a sign", node, node.operand)
        case ast.IfExp():
            yield replaced("always", node, node.body)
            yield replaced("never", node, node.orelse)
        case ast.comprehension() if node.ifs:
            yield attribute("drop a filter", node, "ifs", node.ifs[:-1])
        case ast.Constant(value=bool() as value):
            yield attribute("constant", node, "value", not value)
        case ast.Constant(value=int() as value):
            yield attribute("constant", node, "value", value + 1)
        case ast.Constant(value=float() as value) if not 0 < value < HAIR:
            yield attribute("constant", node, "value", value * 2 or 1.0)
        case ast.Call():
            yield from call_edits(node)


def call_edits(node: ast.Call) -> Iterator[Edit]:
    function = node.func
    if isinstance(function, ast.Attribute) and function.attr in STEPS and not node.args:
        yield replaced("drop a step", node, function.value)
    if isinstance(function, ast.Attribute) and function.attr in NAMES:
        yield attribute("min/max", function, "attr", NAMES[function.attr])
    if isinstance(function, ast.Name) and function.id in NAMES:
        yield attribute("min/max", function, "id", NAMES[function.id])
    name = called(node)
    starred = any(isinstance(argument, ast.Starred) for argument in node.args[:2])
    if len(node.args) > 1 and not starred and name not in SYMMETRIC:
        yield attribute("swap arguments", node, "args", [node.args[1], node.args[0], *node.args[2:]])
    for place, keyword in enumerate(node.keywords):
        if keyword.arg is not None and keyword.arg not in LEFT:
            rest = node.keywords[:place] + node.keywords[place + 1 :]
            yield attribute("drop an argument", node, "keywords", rest)


def called(node: ast.Call) -> str:
    """The name of a function, without what it is a part of."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def is_nothing(node: ast.expr) -> bool:
    """None already, or False, which counts as much; that it is True is another mutant."""
    return isinstance(node, ast.Constant) and (node.value is None or node.value is False)


def is_text(node: ast.BinOp) -> bool:
    """Joined texts, and unions of types."""
    sides = (node.left, node.right)
    texts = any(isinstance(side, ast.JoinedStr | ast.Constant) and not is_number(side) for side in sides)
    return texts or (isinstance(node.op, ast.BitOr) and any(isinstance(side, ast.Name) for side in sides))


def is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)
