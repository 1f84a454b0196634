"""GBNF said in the matcher's language, a dialect of Lark: exactly the same texts.

A grammar whose rules do not come back to themselves is one regular expression: one lexeme. Any
other is a grammar whose lexemes are single characters. Longer ones would be faster, but a lexeme
takes all it can, and GBNF knows no such thing: in llama.cpp's own example of arithmetic the blanks
behind a number would swallow the newline that must follow them.
"""

from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

from services.llm.gbnf import Choice, Node, Repeat, Sequence, Symbol, Use, rules_of
from services.llm.regex_bounds import MAX_WEIGHT


def lark_of(source: str) -> str:
    """The grammar in Lark. Raises Unfit, which names the line."""
    rules = rules_of(source)
    letter = "R" if _is_light_expression(rules) else "r"  # in Lark, capitals name lexemes
    names = {name: f"{letter}{number}" for number, name in enumerate(rules)}
    lines = [f"{names[name]}: {_written(node, names)}" for name, node in rules.items()]
    return "\n".join([f"start: {names['root']}", *lines, ""])


def _written(node: Node, names: Mapping[str, str]) -> str:
    match node:
        case Symbol(expression):
            return f"/{expression}/"
        case Use(rule):
            return names[rule]
        case Sequence(parts):
            return f"({' '.join(_written(part, names) for part in parts)})" if parts else '""'
        case Choice(options):
            return f"({' | '.join(_written(option, names) for option in options)})"
        case Repeat(part, least, most):
            limit = "" if most is None else most
            return f"({_written(part, names)}){{{least},{limit}}}"


def _is_light_expression(rules: Mapping[str, Node]) -> bool:
    """Whether it can be written out without rules, and is not too long then."""
    uses = {name: set(_uses(node)) for name, node in rules.items()}
    try:
        order = list(TopologicalSorter(uses).static_order())
    except CycleError:
        return False
    weights: dict[str, int] = {}
    for name in order:
        weights[name] = _weight(rules[name], weights)
    return max(weights.values()) <= MAX_WEIGHT


def _parts(node: Node) -> tuple[Node, ...]:
    match node:
        case Sequence(parts) | Choice(parts):
            return parts
        case Repeat(part):
            return (part,)
        case _:
            return ()


def _uses(node: Node) -> Iterator[str]:
    if isinstance(node, Use):
        yield node.rule
    for part in _parts(node):
        yield from _uses(part)


def _weight(node: Node, weights: Mapping[str, int]) -> int:
    if isinstance(node, Use):
        return weights[node.rule]
    within = sum(_weight(part, weights) for part in _parts(node))
    if isinstance(node, Repeat):
        return within * max(node.least, node.most or 0, 1)
    return within or 1
