"""What a child process owes its parent."""

import ctypes
import os
import signal

PARENT_ENV = "COHABIT_PARENT_PID"
_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Ask the kernel to kill this process when the one that started it is gone.

    Does nothing unless the parent named itself in `COHABIT_PARENT_PID`. The signal fires when the
    *thread* that started us ends, so parents start children from their main thread.
    """
    named = os.environ.get(PARENT_ENV)
    if not named:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(named):  # it died before we could ask
        os._exit(1)


def child_env() -> dict[str, str]:
    """The environment to start a child with, so that it can die with this process.

    gRPC's library says nothing of its own there unless asked to: it has a line for every handshake
    that fails, and whoever can reach a port can make those without end.
    """
    return {"GRPC_VERBOSITY": "NONE", **os.environ, PARENT_ENV: str(os.getpid())}
