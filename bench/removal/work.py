"""One side of the comparison in a process of its own: pictures in, their cutouts encoded, timed.

    python -P -m bench.removal.work SIDE THREADS FORMAT MODEL   one JSON object a line, in and out
    ← {"paths": ["…"], "in_flight": 2}      → {"cpu_s": …, "answer_bytes": …}

`cohabit` is the pipeline as an engine's process runs it, allocator included. `rembg` and `matting`
(its alpha matting) are its `remove` on a picture that Pillow opened, written by the encoder that
the pipeline writes with. THREADS are those of the network; 0 leaves rembg its default.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

from chassis.process import die_with_parent

Cut = Callable[[Sequence[bytes], int], int]
"""Pictures, and how many at once; answers the bytes of all cutouts."""

WRITTEN: Mapping[str, Mapping[str, Any]] = {
    "png": {"compress_level": 4},
    "webp": {"quality": 85, "method": 4, "exact": True},
}
"""What `imaging.encode` asks of Pillow by default; a test compares the files."""


def cohabit(threads: int, kind: str, model: Path) -> Cut:
    """The pipeline on an event loop."""
    from services.matte.allocation import keep_freed  # noqa: PLC0415 - before anything large

    keep_freed()
    from imaging.values import Bounds, Encoding, Format  # noqa: PLC0415
    from services.matte.engine import EngineSpec  # noqa: PLC0415
    from services.matte.networks.opening import open_network  # noqa: PLC0415
    from services.matte.pipeline import Pipeline  # noqa: PLC0415
    from services.matte.solving import warm_up  # noqa: PLC0415
    from services.matte.values import Removal  # noqa: PLC0415

    spec, encoding = EngineSpec(model, threads=threads), Encoding(Format[kind.upper()])
    network = open_network(spec)
    warm_up()

    async def all_of(pictures: Sequence[bytes], in_flight: int) -> int:
        pipeline, left = Pipeline(network, spec.places, Bounds()), iter(pictures)

        async def some() -> int:
            done = 0
            for picture in left:
                removed, _ = await pipeline.remove(Removal(picture, encoding))
                done += len(removed.image.data) if removed.image else 0
            return done

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(some()) for _ in range(in_flight)]
        pipeline.close()
        return sum(task.result() for task in tasks)

    loop = asyncio.new_event_loop()
    return lambda pictures, in_flight: loop.run_until_complete(all_of(pictures, in_flight))


def rembg(threads: int, kind: str, *, matting: bool) -> Cut:
    """One session, and as many threads as pictures at once."""
    import onnxruntime  # noqa: PLC0415 - a side imports its own libraries, not the other's
    from PIL import Image  # noqa: PLC0415
    from rembg import new_session, remove  # noqa: PLC0415

    options: Any = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = new_session("u2netp", sess_opts=options)

    def one(picture: bytes) -> int:
        file = BytesIO()
        cutout: Any = remove(Image.open(BytesIO(picture)), session=session, alpha_matting=matting)
        cutout.save(file, kind.upper(), **WRITTEN[kind])
        return file.tell()

    def all_of(pictures: Sequence[bytes], in_flight: int) -> int:
        with ThreadPoolExecutor(in_flight) as pool:
            return sum(pool.map(one, pictures))

    return all_of


def _side(name: str, threads: int, kind: str, model: Path) -> Cut:
    if name == "cohabit":
        return cohabit(threads, kind, model)
    return rembg(threads, kind, matting=name == "matting")


def _orders() -> Iterator[dict[str, Any]]:
    while line := sys.stdin.readline():
        yield json.loads(line)


def main(side: str, threads: str, kind: str, model: str) -> None:
    """Until the input ends. What a library prints goes elsewhere: pymatting does."""
    answers, sys.stdout = sys.stdout, sys.stderr
    cut = _side(side, int(threads), kind, Path(model))
    print("{}", file=answers, flush=True)
    for order in _orders():
        pictures = [Path(path).read_bytes() for path in order["paths"]]
        began_s = time.process_time()
        answer_bytes = cut(pictures, order["in_flight"])
        cpu_s = time.process_time() - began_s
        told = {"cpu_s": cpu_s, "answer_bytes": answer_bytes}
        print(json.dumps(told), file=answers, flush=True)


if __name__ == "__main__":
    die_with_parent()
    main(*sys.argv[1:])
