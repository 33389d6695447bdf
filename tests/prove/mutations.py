"""The small changes that `mutants.py` makes to a module, one at a time: the kinds (`MUTATIONS`), and the positions
(`places`).

Excluded by rule:
- docstrings, and strings with a space in them: sentences for users. Tests of these words would only repeat them;
- annotations, type aliases, imports and decorators: types are for mypy, and `frozen` and `slots` only declare data;
- integers above 100: chosen limits, whose neighbours are not wrong;
- changes that compile to the same code as the module itself or as another mutant.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

# The number of words shown around a change, and of a change.
_WORDS = 3
_WORDS_MAX = 8

# --- the changes ------------------------------------------------------------------------------------------------------

COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.BitOr: ast.BitAnd,
    ast.Pow: ast.Mult,
}
CALLED = {"any": "all", "all": "any", "min": "max", "max": "min", "sorted": "list"}


def changed(node: Any, **fields: Any) -> Any:
    """The node with other fields."""
    return ast.copy_location(type(node)(**{**dict(ast.iter_fields(node)), **fields}), node)


def without_each(items: Sequence[Any]) -> Iterator[list[Any]]:
    for index in range(len(items)):
        yield [*items[:index], *items[index + 1 :]]


def compare(node: ast.Compare) -> Iterator[ast.AST]:
    for index, operator in enumerate(node.ops):
        for other in COMPARED[type(operator)]:
            yield changed(node, ops=[*node.ops[:index], other(), *node.ops[index + 1 :]])


def combine(node: ast.BoolOp) -> Iterator[ast.AST]:
    yield changed(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    for rest in without_each(node.values):
        yield changed(node, values=rest) if len(rest) > 1 else rest[0]


def negate(node: ast.UnaryOp) -> Iterator[ast.AST]:
    if isinstance(node.op, ast.Not):
        yield node.operand


def compute(node: ast.BinOp) -> Iterator[ast.AST]:
    yield from (node.left, node.right)
    if type(node.op) in COMPUTED:
        yield changed(node, op=COMPUTED[type(node.op)]())


def accumulate(node: ast.AugAssign) -> Iterator[ast.AST]:
    if type(node.op) in COMPUTED:
        yield changed(node, op=COMPUTED[type(node.op)]())
    yield ast.Assign(targets=[node.target], value=node.value, lineno=node.lineno)
    yield ast.Pass()


def constant(node: ast.Constant) -> Iterator[ast.AST]:
    value = node.value
    if value is None or value == "":
        yield ast.Constant("mutant")
    elif isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int) and abs(value) <= 100:
        yield from (ast.Constant(value + 1), ast.Constant(value - 1))
    elif isinstance(value, str):
        yield ast.Constant("")


def joined(node: ast.JoinedStr) -> Iterator[ast.AST]:
    yield from (changed(node, values=rest) for rest in without_each(node.values))


def sequence(node: ast.Tuple | ast.List | ast.Set) -> Iterator[ast.AST]:
    if isinstance(getattr(node, "ctx", None), ast.Store):
        return
    yield from (changed(node, elts=rest) for rest in without_each(node.elts) if rest or not isinstance(node, ast.Set))
    if all(isinstance(element, ast.Call) and ast.unparse(element.func) == "Rule" for element in node.elts):
        yield from exchange(node)


def exchange(node: Any) -> Iterator[ast.AST]:
    """Rules in another order: each pair of neighbours swapped. A swap is described by the rules' predicates."""
    for index in range(len(node.elts) - 1):
        one, two = (ast.unparse(rule.args[2]) for rule in node.elts[index : index + 2])
        swapped = [*node.elts[:index], *reversed(node.elts[index : index + 2]), *node.elts[index + 2 :]]
        exchanged = changed(node, elts=swapped)
        exchanged.told = f"{one}, {two} → {two}, {one}"
        yield exchanged


def mapping(node: ast.Dict) -> Iterator[ast.AST]:
    for keys, values in zip(without_each(node.keys), without_each(node.values), strict=True):
        yield changed(node, keys=keys, values=values)


def call(node: ast.Call) -> Iterator[ast.AST]:
    if isinstance(node.func, ast.Name) and node.func.id in CALLED:
        keywords = node.keywords if node.func.id != "sorted" else []
        yield changed(node, func=ast.Name(CALLED[node.func.id]), keywords=keywords)
    yield from (changed(node, keywords=rest) for rest in without_each(node.keywords))
    for index, argument in enumerate(node.args):
        if isinstance(argument, ast.Starred):
            yield changed(node, args=[*node.args[:index], *node.args[index + 1 :]])


def choose(node: ast.IfExp) -> Iterator[ast.AST]:
    yield from (node.body, node.orelse)


def branch(node: ast.If) -> Iterator[ast.AST]:
    yield changed(node, test=ast.Constant(True))
    yield changed(node, test=ast.Constant(False))


def loop(node: ast.While | ast.For) -> Iterator[ast.AST]:
    yield ast.Pass()
    yield changed(node, body=[*node.body, ast.Break()])


def select(node: ast.comprehension) -> Iterator[ast.AST]:
    yield from (changed(node, ifs=rest) for rest in without_each(node.ifs))


def remove(node: ast.stmt) -> Iterator[ast.AST]:
    if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
        yield ast.Pass()


def return_at_once(node: ast.FunctionDef) -> Iterator[ast.AST]:
    # The rest stays, so that a generator remains a generator.
    (*text, first) = node.body[:1] if ast.get_docstring(node) is None else node.body[:2]
    yield changed(node, body=[*text, ast.Return(None), first, *node.body[len(text) + 1 :]])


MUTATIONS: dict[type[ast.AST], Callable[[Any], Iterator[ast.AST]]] = {
    ast.Compare: compare,
    ast.BoolOp: combine,
    ast.UnaryOp: negate,
    ast.BinOp: compute,
    ast.AugAssign: accumulate,
    ast.Constant: constant,
    ast.JoinedStr: joined,
    ast.Tuple: sequence,
    ast.List: sequence,
    ast.Set: sequence,
    ast.Dict: mapping,
    ast.Call: call,
    ast.IfExp: choose,
    ast.If: branch,
    ast.While: loop,
    ast.For: loop,
    ast.comprehension: select,
    ast.Expr: remove,
    ast.Assign: remove,
    ast.Return: remove,
    ast.Raise: remove,
    ast.Continue: remove,
    ast.FunctionDef: return_at_once,
}


# --- the mutants ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mutant:
    """A source with one change. `change` describes the code before and after."""

    line: int
    function: str
    change: str
    source: str


@dataclass(frozen=True)
class Place:
    """A node, its position in its parent, and its function."""

    node: ast.AST
    parent: ast.AST
    field: str
    index: int | None
    function: str
    line: int

    def put(self, node: ast.AST) -> None:
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


def is_message(node: ast.AST) -> bool:
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    texts = [part.value for part in parts if isinstance(part, ast.Constant)]
    return any(isinstance(text, str) and " " in text for text in texts)


def is_type_alias(node: ast.AST) -> bool:
    """Whether this is an alias such as `Names = list[str]` or `Answer = int | None`."""
    if not isinstance(node, ast.Assign) or node.col_offset:
        return False
    return isinstance(node.value, ast.Subscript) or is_union_with_none(node.value)


def is_union_with_none(node: ast.AST) -> bool:
    """Only types have a union with None."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return any(is_none(one) or is_union_with_none(one) for one in (node.left, node.right))
    return False


def is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def is_none_of_is(parent: ast.AST, node: ast.AST) -> bool:
    """Whether this is the None of `is None`; the mutants of the comparison cover its alternatives."""
    return isinstance(parent, ast.Compare) and is_none(node)


def places(parent: ast.AST, function: str = "", line: int = 1) -> Iterator[Place]:
    """Every node that may be changed, outer nodes first."""
    for field, held in ast.iter_fields(parent):
        if field in ("annotation", "returns", "decorator_list", "format_spec") or isinstance(parent, ast.JoinedStr):
            continue
        for index, node in enumerate(held) if isinstance(held, list) else [(None, held)]:
            if not isinstance(node, ast.AST) or is_message(node) or is_none_of_is(parent, node) or is_type_alias(node):
                continue
            here = getattr(node, "lineno", line)
            name = (
                f"{function}.{node.name}".strip(".") if isinstance(node, ast.FunctionDef | ast.ClassDef) else function
            )
            yield Place(node, parent, field, index, name, here)
            yield from places(node, name, here)


def same(one: Sequence[str], two: Sequence[str]) -> int:
    """The number of words in the common prefix."""
    return next((i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))


def told(before: ast.AST, after: ast.AST) -> str:
    """The change in one line: the words that differ, and a few around them."""
    one, two = ast.unparse(before).split(), ast.unparse(after).split()
    start = same(one, two)
    end = same(one[: start - 1 if start else None : -1], two[: start - 1 if start else None : -1])
    cut = max(start - _WORDS, 0), max(end - _WORDS, 0)
    parts = [words[cut[0] : len(words) - cut[1]] for words in (one, two)]
    return " → ".join(" ".join(part if len(part) <= _WORDS_MAX else [*part[:_WORDS_MAX], "…"]) for part in parts)


def essence(code: CodeType) -> tuple[object, ...]:
    """The executed code, without line numbers. If it is equal, a change has no effect."""
    consts = tuple(essence(c) if isinstance(c, CodeType) else (type(c), c) for c in code.co_consts)
    return (code.co_code, code.co_exceptiontable, code.co_names, code.co_varnames, code.co_freevars, consts)


def mutants_of(source: str, function: str | None) -> Iterator[Mutant]:
    """Every mutant of a module's source, or of one function in it."""
    tree = ast.parse(source)
    made = {essence(compile(ast.unparse(tree), "", "exec"))}
    told_of: Counter[tuple[str, str]] = Counter()
    for place in list(places(tree)):
        if function is not None and place.function != function:
            continue
        shown = place.parent if isinstance(place.node, ast.Constant) else place.node
        before = copy.deepcopy(shown)
        for node in MUTATIONS.get(type(place.node), lambda node: iter(()))(place.node):
            place.put(node)
            change = getattr(node, "told", None) or told(before, shown if shown is place.parent else node)
            mutated = ast.unparse(ast.fix_missing_locations(tree))
            place.put(place.node)
            if (code := essence(compile(mutated, "", "exec"))) in made:
                continue
            made.add(code)
            told_of[place.function, change] += 1
            again = told_of[place.function, change]
            yield Mutant(place.line, place.function, change if again == 1 else f"{change} #{again}", mutated)
