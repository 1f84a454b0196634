"""How the solver's kernels are compiled: without the GIL, for speed, and kept on disk.

Their code stands in `kernels` alone, for numba's cache looks at one file.
"""

from collections.abc import Callable
from typing import Any

from numba import njit
from numba.core.compiler import Compiler

_FAST = {"contract", "reassoc", "arcp", "nsz", "nnan", "ninf"}


class _Distinct(Compiler):  # type: ignore[misc]
    """Tells LLVM that no argument overlaps another; to check that takes more than it gains."""

    def define_pipelines(self) -> Any:
        self.state.flags.noalias = True
        return super().define_pipelines()


def _compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`njit` that keeps its code on disk where it finds a folder to write to."""

    def decorated(kernel: Callable[..., Any]) -> Any:
        settings = {"nogil": True, "fastmath": _FAST, "error_model": "numpy", **options}
        try:
            return njit(cache=True, **settings)(kernel)
        except RuntimeError:
            return njit(**settings)(kernel)

    return decorated


kernel = _compiled()
"""For code that calls loops."""
loop = _compiled(pipeline_class=_Distinct)
"""For the innermost, whose arguments are never the same memory."""
