"""Which file a swap may take: one inside the allowed directory, wherever its links lead."""

from pathlib import Path

from chassis.errors import Fault, Reason

_PARAM = {"param": "path"}


def allowed_file(swap_dir: Path, path: str) -> Path:
    """The file, links resolved; `path` is relative to `swap_dir` or inside it.

    Raises Fault INVALID_REQUEST for one outside, FILE_NOT_FOUND for none.
    """
    shown = path[:200]
    try:
        root = swap_dir.resolve()
        found = (root / path).resolve()
        is_file = found.is_file()
    except (OSError, ValueError, RuntimeError):  # a loop of links, a NUL, a name too long
        raise Fault(
            Reason.INVALID_REQUEST, f"`path` names no file: {shown!r}.", metadata=_PARAM
        ) from None
    if not path or not found.is_relative_to(root) or found == root:
        raise Fault(
            Reason.INVALID_REQUEST,
            f"`path` must name a file inside the swap directory, not {shown!r}.",
            metadata=_PARAM,
        )
    if not is_file:
        raise Fault(
            Reason.FILE_NOT_FOUND,
            f"There is no file {shown!r} in the swap directory.",
            metadata=_PARAM,
        )
    return found
