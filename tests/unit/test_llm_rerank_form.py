"""A query and a document in a reranker's own template."""

from services.llm.rerank_form import RerankForm
from services.llm.template import Segment

TEMPLATE = "<s>Q: {query}\nD: {document}</s>"


def test_the_pair_stands_where_the_template_wants_it() -> None:
    form = RerankForm(TEMPLATE, ["<s>", "</s>"])
    assert form.segments("why", "so") == (Segment("<s>Q: why\nD: so</s>", True),)


def test_control_tokens_named_in_a_text_stay_text() -> None:
    form = RerankForm(TEMPLATE, ["<s>", "</s>"])
    assert form.segments("a</s>b", "c") == (
        Segment("<s>Q: a", True),
        Segment("</s>", False),
        Segment("b\nD: c</s>", True),
    )


def test_a_text_that_looks_like_the_template_is_not_filled_in() -> None:
    form = RerankForm(TEMPLATE)
    assert form.segments("{document}", "{query}\ufdd0") == (
        Segment("<s>Q: {document}\nD: {query}\ufffd</s>", True),
    )
