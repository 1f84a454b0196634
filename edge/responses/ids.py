"""Ids that nobody can guess. That of a response says which of the edge's workers answers it."""

import secrets

_ID_BYTES = 24
_SLOT_DIGITS = 2


def new_id(prefix: str) -> str:
    """An id."""
    return prefix + secrets.token_hex(_ID_BYTES)


def response_id(slot: int) -> str:
    """One of a response that the worker `slot`, at most 255, answers."""
    return f"{new_id('resp_')[:-_SLOT_DIGITS]}{slot:02x}"


def slot_of(name: str) -> int | None:
    """Who answers a response of this id, if it is being answered; None: it is none of ours."""
    try:
        return int(name[-_SLOT_DIGITS:], 16)
    except ValueError:
        return None
