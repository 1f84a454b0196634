"""A network with the shape of BiRefNet and nothing of its weights: pictures in, logits out.

    python -m tests.tiny_birefnet FILE   writes it as torch.export or, with --script, as TorchScript

It answers several scales, the finest last, as BiRefNet does, and finds what is bright.
"""

import argparse
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn

SIDE_PX = 1024


class TinyBiRefNet(nn.Module):
    """(1, 3, 1024, 1024) → [(1, 1, 256, 256), (1, 1, 1024, 1024)]"""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Conv2d(3, 4, 3, stride=4, padding=1)
        self.coarse = nn.Conv2d(4, 1, 1)
        self.fine = nn.Conv2d(3, 1, 3, padding=1)
        self._seed()

    def forward(self, picture: torch.Tensor) -> list[torch.Tensor]:
        coarse = self.coarse(torch.relu(self.encode(picture)))
        raised = nn.functional.interpolate(coarse, scale_factor=4.0, mode="bilinear")
        return [coarse, 0.01 * raised + 4.0 * self.fine(picture)]

    def _seed(self) -> None:
        generator = torch.Generator().manual_seed(7)
        with torch.no_grad():
            for one in (self.encode, self.coarse):
                one.weight.normal_(generator=generator).mul_(0.1)
            self.fine.weight.fill_(1 / 27)
            self.fine.bias.zero_()  # type: ignore[union-attr]


def export(path: Path) -> Path:
    """As torch.export writes it."""
    example = torch.zeros(1, 3, SIDE_PX, SIDE_PX)
    torch.export.save(torch.export.export(TinyBiRefNet().eval(), (example,)), path)
    return path


def script(path: Path) -> Path:
    """As TorchScript."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the format is an old one
        module: Any = torch.jit.script(TinyBiRefNet().eval())
        module.save(str(path))
    return path


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--script", action="store_true")
    told = parser.parse_args()
    (script if told.script else export)(told.file)
