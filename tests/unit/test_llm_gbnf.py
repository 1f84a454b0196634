"""GBNF: the same texts as in llama.cpp, whatever the grammar's ambiguities; mistakes by line."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chassis.errors import Fault
from services.llm.constraint import Constraint
from services.llm.gbnf_lark import lark_of
from services.llm.unfit import Unfit
from services.llm.values import ConstraintKind, OutputConstraint
from tests.constraint_kit import accepts, grammars, refusal

ARITHMETIC = r"""
# Blanks may stand after a number, and a newline is a blank: only a matcher that tries both fits.
root  ::= (expr "=" ws term "\n")+
expr  ::= term ([-+*/] term)*
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \t\n]*
"""
NESTED = r"""root ::= list
list ::= "[" ( # a comment
    item ("," item)*
  )? "]"
item ::= list | [0-9]{1,3}"""


def held_to(grammar: str) -> Constraint:
    return grammars().compile(OutputConstraint(ConstraintKind.GRAMMAR, grammar), "grammar")


@pytest.mark.parametrize(
    ("grammar", "fits", "others"),
    [
        (ARITHMETIC, ["x = 1\n", "(a+b)*3=7\n\n", "1=1\n2=2\n"], ["x = 1", "=1\n"]),
        (NESTED, ["[]", "[1,[22,[]],333]"], ["[1,]", "[1234]", "[", "[ ]"]),
        ('root ::= [a-z]+ "end"', ["xend", "enxend", "endend"], ["end", "enx"]),
        ('root ::= ("ab" | "abc") ("d" | "cd")', ["abd", "abcd", "abccd"], ["abc", "abdd"]),
        ('root ::= root "+" "1" | "1"', ["1", "1+1+1"], ["+1", "1+"]),
        (r'root ::= "\x41\n\"\\" [\u00e9] "\U0001F600"', ['A\n"\\é😀'], ["A"]),
        (r"root ::= [^\]a-c-]+", ["xyz^\n"], ["a", "]", "-"]),
        ("root ::= [.-]", [".", "-"], ["a"]),
        (r"root ::= .", ["a", "\n"], ["", "ab"]),
        ('root ::= "%/a"', ["%/a"], ["%"]),
        ('root ::= ("a"?)*', ["", "aaa"], ["b"]),
        ('root ::= "a"{2} "b"{1,} "c"{0,2}', ["aab", "aabbcc"], ["ab", "aa", "aabccc"]),
        ('root ::= a-b a_b\r\na-b ::= "x" |\r\n  "y"\r\na_b ::= "z" # end', ["xz", "yz"], ["zz"]),
        ('root ::= ""', [""], ["a"]),
        ('root ::= "a" | ', ["a", ""], ["b"]),
    ],
)
def test_a_grammar_fits_these_texts_and_not_those(
    grammar: str, fits: list[str], others: list[str]
) -> None:
    constraint = held_to(grammar)
    assert [text for text in fits if not accepts(constraint, text)] == []
    assert [text for text in others if accepts(constraint, text)] == []


# The same expression in GBNF and in Python's `re`, whose matcher tries everything.
both = st.recursive(
    st.sampled_from(
        [
            ('"a"', "a"),
            ('"ab"', "ab"),
            ('"b"', "b"),
            ("[a-b]", "[ab]"),
            ("[^a]", "[^a]"),
            (".", "."),
        ]
    ),
    lambda parts: st.one_of(
        st.lists(parts, min_size=2, max_size=3).map(
            lambda p: (" ".join(g for g, _ in p), "".join(r for _, r in p))
        ),
        st.lists(parts, min_size=2, max_size=3).map(
            lambda p: (f"({' | '.join(g for g, _ in p)})", f"(?:{'|'.join(r for _, r in p)})")
        ),
        st.tuples(parts, st.sampled_from(["*", "+", "?", "{1,2}", "{2}", "{2,}"])).map(
            lambda p: (f"({p[0][0]}){p[1]}", f"(?:{p[0][1]}){p[1]}")
        ),
    ),
    max_leaves=6,
)


@settings(max_examples=80, deadline=None)
@given(both, st.lists(st.text("abc", max_size=5), min_size=4, max_size=8))
def test_it_fits_what_a_matcher_that_tries_everything_fits(
    form: tuple[str, str], texts: list[str]
) -> None:
    grammar, expression = form
    constraint = held_to(f"root ::= x\nx ::= {grammar}")
    for text in texts:
        fits = re.fullmatch(expression, text, re.DOTALL) is not None
        assert accepts(constraint, text) == fits, text


@pytest.mark.parametrize(
    ("grammar", "said"),
    [
        ('root ::= "a', "at line 1, has a text or a class that does not end"),
        ("root ::= [a", "at line 1, has a text or a class that does not end"),
        ('root ::= "\\', "at line 1, has an escape that is not"),
        (r'root ::= "\q"', "at line 1, has an escape that is not"),
        (r'root ::= "\ud800"', "has an escape that is no character"),
        (r'root ::= "\U00110000"', "has an escape that is no character"),
        ("root ::= a\n\na ::= b", "at line 3, uses the rule `b`, which is not there"),
        ('root ::= "a"\nroot ::= "b"', "at line 2, has a second rule `root`"),
        ('a ::= "a"', "has no rule `root`"),
        ("", "has no rule `root`"),
        ('root ::= ("a"', "lacks a `)`"),
        ('root ::= "a")', "at line 1, has something else where"),
        ('root "a"', "lacks ::= after `root`"),
        ("? ::= a", "has something else where a rule"),
        ('root ::= "a"{2,1}', "has a count that is not from 0 to 2000"),
        ('root ::= "a"{2001}', "has a count that is not from 0 to 2000"),
        ('root ::= "a"{x}', "has a count that is not {n}"),
        ("root ::= []", "has an empty class"),
        ("root ::= [b-a]", "has a range whose end comes before"),
        ("root ::= <think>", "names a token, which is not supported"),
        ("root ::= " + "(" * 10_000, "nested deeper than 50"),
        ("root ::= " + '"aaaaaaaaaa" ' * 1001, "has more than 10000 characters"),
        ("\n".join(f'r{i} ::= "a"' for i in range(1001)), "has more than 1000 rules"),
        ('root ::= "' + "a" * 70_000, "larger than 64 KiB"),
        ("root ::= root", "nothing can fulfil it"),
    ],
    ids=lambda value: ascii(value)[:24],
)
def test_a_mistake_is_named_by_its_line(grammar: str, said: str) -> None:
    assert said in refusal(OutputConstraint(ConstraintKind.GRAMMAR, grammar), "grammar")


@pytest.mark.parametrize(
    ("grammar", "one_lexeme"),
    [
        ('root ::= a a\na ::= "x"{100}', True),
        ("root ::= a a\na ::= b{2000}\nb ::= [a-z]", False),
        ('root ::= "(" root ")" | "x"', False),
        (
            "\n".join(f"r{i} ::= r{i + 1} r{i + 1}" for i in range(40))
            + "\nr40 ::= .\nroot ::= r0",
            False,
        ),
    ],
)
def test_what_can_be_written_out_is_one_lexeme(grammar: str, one_lexeme: bool) -> None:
    assert ("R" in lark_of(grammar)) == one_lexeme


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "grammar",
    [
        'root ::= (("a"{2000}){2000}){2000}',
        "root ::= " + " ".join(["[a-z]*"] * 1000),
        "root ::= x | x x | x x x\nx ::= root | [a-z]",
        "root ::= s\ns ::= s s s | s s | [a-z] | s?",
        "\n".join([f"r{i} ::= r{i + 1} r{i + 1} | r{i + 1}" for i in range(300)])
        + "\nr300 ::= [a-z]?\nroot ::= r0",
        "root ::= " + " | ".join(f'"{i * 7919}"' for i in range(1500)),
        "root ::= " + "(" * 50 + "[a-z]" + ")*" * 50,
        "root ::= root? " + " ".join(["[a-z]*"] * 1000),
    ],
    ids=lambda grammar: grammar[:24],
)
def test_hostile_grammars_are_answered_in_time(grammar: str) -> None:
    grammars().compile(OutputConstraint(ConstraintKind.JSON_OBJECT))
    began = time.perf_counter()

    def begin() -> None:
        constraint = held_to(grammar)
        for _ in range(10):
            constraint.accept(int(constraint.mask().nonzero()[0][-1]))

    try:
        begin()
    except Fault as fault:
        said = str(fault)
    else:
        said = ""
    assert len(said) < 300
    assert time.perf_counter() - began < 5.0


@given(st.text('root:=[]()"|*+?{},.#-^a1\\ \n', max_size=40))
def test_nothing_but_a_refusal_comes_of_junk(junk: str) -> None:
    try:
        lark = lark_of(f"root ::= {junk}")
    except Unfit:
        return
    assert lark.lower().startswith("start: r0\n")
