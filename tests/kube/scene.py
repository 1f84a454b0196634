"""Surroundings of a shell in which `helm` and `kubectl` are there, and a cluster, of a kind."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kube.api import serving
from tests.kube.chart import tools
from tests.kube.cluster import Cluster

_STAND_IN = Path(__file__).parent / "bin" / "kubectl"
_KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{{name: stand-in, cluster: {{server: "{url}"}}}}]
contexts: [{{name: stand-in, context: {{cluster: stand-in}}}}]
current-context: stand-in
"""


@contextmanager
def cluster_for(folder: Path, namespace: str) -> Iterator[dict[str, str]]:
    """A cluster, told to programs started with the environment that is yielded.

    The programs are put into `folder`/bin, which has to be on their PATH.
    """
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    (programs / "helm").symlink_to(tools() / "helm")
    (programs / "kubectl").symlink_to(_STAND_IN)
    with serving(Cluster()) as url:
        config = folder / "kubeconfig"
        config.write_text(_KUBECONFIG.format(url=url))
        yield {
            "KUBECONFIG": str(config),
            "KUBECTL": str(tools() / "kubectl"),
            "COHABIT_NAMESPACE": namespace,
        }
