"""Reads every hostile picture in a process of its own, and tells what came of it.

One line of JSON per file: name, verdict, what came out, CPU seconds, growth of the process in MiB.
Run as a module; a crash of the process is a finding.
"""

import hashlib
import json
import resource
import sys
import time

from chassis.errors import Fault
from imaging.decode import decode, decode_gray, probe
from imaging.values import Bounds
from tests.hostile_pictures import Case, all_cases

BOUNDS = Bounds(max_px=2_000_000)


def _came_out(case: Case) -> str:
    try:
        picture = decode(case.data, BOUNDS, "image")
        told = probe(case.data, BOUNDS, "image")
        matte = decode_gray(case.data, BOUNDS, "image")
    except Fault as fault:
        return f"{fault.row.http} {fault.reason} {fault.message}"
    size = (picture.height_px, picture.width_px)
    same = matte.shape == size == (told.height_px, told.width_px) == picture.rgb.shape[:2]
    return "picture" if same else f"sizes differ: {told} {picture.rgb.shape} {matte.shape}"


def main() -> None:
    """Everything once; the first figures are of a warm process."""
    cases = all_cases()
    for case in cases[:50]:
        _came_out(case)
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for case in cases:
        started_s = time.process_time()
        came_out = _came_out(case)
        line = {
            "name": case.name,
            "sha256": hashlib.sha256(case.data).hexdigest(),
            "verdict": case.verdict.value,
            "came_out": came_out,
            "cpu_s": round(time.process_time() - started_s, 3),
            "grown_mib": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib) >> 10,
        }
        sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
