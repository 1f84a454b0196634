"""Which member of a family serves a request (rule 5 of `scheduler`). Pure."""

from collections.abc import Iterable

from services.scheduler.core.state import Model


def choose(members: Iterable[Model], tokens: int, *, load_only: bool = False) -> Model:
    """The model for a request of so many tokens, prompt and longest answer together.

    Of the members whose context holds them: the largest that serves now; else the smallest, which
    is the one that lives beside others. Without a count, or when none holds it: the largest, which
    will say by itself that it is too much. Who only wants the family loaded gets the one that most
    requests will go to: one that serves, or the smallest.
    """
    by_size = sorted(members, key=lambda model: (model.facts.context_tokens, model.key))
    fitting = [m for m in by_size if load_only or 0 < tokens <= m.facts.context_tokens]
    if not fitting:
        return by_size[-1]
    serving = [model for model in fitting if model.serves]
    return serving[-1] if serving else fitting[0]
