"""A small random model of the Ovis-Image family, which the diffusion library loads and runs.

Ovis-Image is a Flux transformer with a Qwen3 text encoder. The library reads most of its dimensions
from the shapes of the weights, so one that fits into a few MiB can be made. What the library has
fixed stays fixed: heads of 128, 32 query and 8 key heads in the text encoder, the Qwen vocabulary,
16 latent channels, 64 channels in the tiny autoencoder. Its pictures are noise: worthless to look
at, exact to compare.

    python -m tests.tiny_diffusion FOLDER
"""

import json
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Tensor = NDArray[np.float16] | NDArray[np.float32]
Tensors = Iterator[tuple[str, Tensor]]

_HEAD = 128
_QUERY_HEADS, _KEY_HEADS = 32, 8
_VOCABULARY = 151_936
_LATENT_CHANNELS = 16
_PATCH = 4 * _LATENT_CHANNELS
_TIME_CHANNELS = 256
_TAESD_CHANNELS, _TAESD_BLOCKS = 64, 3
_DECODER_WIDTHS = (32, 64, 128, 128)
"""Groups of 32 channels are normalised together, so fewer there cannot be."""
_ENCODER_WIDTHS = (128, 256, 512, 512)
"""Fixed in the library."""


@dataclass(frozen=True, slots=True)
class Size:
    """How large the made model is."""

    hidden: int = 128
    """Width of the transformer; a multiple of 128."""
    depth: int = 1
    """Double blocks, and as many single ones."""
    text_hidden: int = 16
    text_layers: int = 1


@dataclass(frozen=True, slots=True)
class TinyDiffusion:
    """The files of a made model."""

    diffusion_model: Path
    llm: Path
    taesd: Path
    vae: Path | None = None
    """The decoder of a full autoencoder, which cannot encode, and so cannot be loaded."""
    lora: Path | None = None


def make_tiny_diffusion(
    folder: Path, *, size: Size | None = None, vae: bool = False, lora: bool = False, seed: int = 0
) -> TinyDiffusion:
    """Write the files into `folder`; the same `seed` and `size` make the same bytes."""
    size = size or Size()
    draw = _Draw(np.random.default_rng(seed))
    folder.mkdir(parents=True, exist_ok=True)
    made = TinyDiffusion(
        folder / "dit.safetensors",
        folder / "llm.safetensors",
        folder / "taesd.safetensors",
        folder / "vae.safetensors" if vae else None,
        folder / "lora.safetensors" if lora else None,
    )
    _save(made.diffusion_model, _transformer(draw, size))
    _save(made.llm, _text_encoder(draw, size))
    _save(made.taesd, _tiny_autoencoder(draw))
    if made.vae is not None:
        _save(made.vae, _decoder(draw))
    if made.lora is not None:
        write_lora(made.lora, hidden=size.hidden, seed=seed)
    return made


def write_lora(path: Path, *, hidden: int = 128, rank: int = 4, seed: int = 0) -> None:
    """A LoRA on two layers of the transformer, strong enough to be seen."""
    draw = _Draw(np.random.default_rng(seed))
    layers = {
        "double_blocks_0_img_attn_qkv": (hidden, 3 * hidden),
        "single_blocks_0_linear2": (5 * hidden, hidden),
    }
    _save(path, _lora(draw, layers, rank))


def write_autoencoder(path: Path, *, seed: int = 0) -> None:
    """A full autoencoder, 73 MB: its encoder cannot be small."""
    draw = _Draw(np.random.default_rng(seed))
    _save(path, chain(_encoder(draw), _decoder(draw)))


@dataclass(frozen=True, slots=True)
class _Draw:
    """Random weights, scaled so that signals keep their strength from layer to layer."""

    rng: np.random.Generator

    def weight(self, *shape: int, gain: float = 1.0) -> NDArray[np.float16]:
        fan_in = int(np.prod(shape[1:]))
        drawn = self.rng.standard_normal(shape, dtype=np.float32)
        return np.asarray(drawn * (gain / fan_in**0.5), np.float16)

    def linear(self, name: str, inputs: int, outputs: int, *, bias: bool = True) -> Tensors:
        yield f"{name}.weight", self.weight(outputs, inputs)
        if bias:
            yield f"{name}.bias", np.zeros(outputs, np.float32)

    def convolution(
        self, name: str, inputs: int, outputs: int, *, kernel: int = 3, gain: float = 1.0
    ) -> Tensors:
        yield f"{name}.weight", self.weight(outputs, inputs, kernel, kernel, gain=gain)
        yield f"{name}.bias", 0.05 * self.rng.standard_normal(outputs, dtype=np.float32)

    def bare_convolution(self, name: str, channels: int) -> Tensors:
        yield f"{name}.weight", self.weight(channels, channels, 3, 3)


def _ones(count: int) -> Tensor:
    return np.ones(count, np.float32)


def _transformer(draw: _Draw, size: Size) -> Tensors:
    hidden = size.hidden
    yield from draw.linear("img_in", _PATCH, hidden)
    yield from draw.linear("time_in.in_layer", _TIME_CHANNELS, hidden)
    yield from draw.linear("time_in.out_layer", hidden, hidden)
    yield "txt_norm.scale", _ones(size.text_hidden)
    yield from draw.linear("txt_in", size.text_hidden, hidden)
    for block in range(size.depth):
        for stream in ("img", "txt"):
            yield from _double_block(draw, f"double_blocks.{block}.{stream}", hidden)
        yield from _single_block(draw, f"single_blocks.{block}", hidden)
    yield from draw.linear("final_layer.adaLN_modulation.1", hidden, 2 * hidden)
    yield from draw.linear("final_layer.linear", hidden, _PATCH)


def _double_block(draw: _Draw, name: str, hidden: int) -> Tensors:
    yield from draw.linear(f"{name}_mod.lin", hidden, 6 * hidden)
    yield from draw.linear(f"{name}_attn.qkv", hidden, 3 * hidden)
    yield f"{name}_attn.norm.query_norm.scale", _ones(_HEAD)
    yield f"{name}_attn.norm.key_norm.scale", _ones(_HEAD)
    yield from draw.linear(f"{name}_attn.proj", hidden, hidden)
    for gate in ("gate_proj", "up_proj"):
        yield from draw.linear(f"{name}_mlp.{gate}", hidden, 4 * hidden)
    yield from draw.linear(f"{name}_mlp.down_proj", 4 * hidden, hidden)


def _single_block(draw: _Draw, name: str, hidden: int) -> Tensors:
    yield from draw.linear(f"{name}.linear1", hidden, 11 * hidden)
    yield from draw.linear(f"{name}.linear2", 5 * hidden, hidden)
    yield f"{name}.norm.query_norm.scale", _ones(_HEAD)
    yield f"{name}.norm.key_norm.scale", _ones(_HEAD)
    yield from draw.linear(f"{name}.modulation.lin", hidden, 3 * hidden)


def _text_encoder(draw: _Draw, size: Size) -> Tensors:
    hidden = size.text_hidden
    embedded = draw.weight(_VOCABULARY, hidden, gain=hidden**0.5)
    yield "model.embed_tokens.weight", embedded
    for layer in range(size.text_layers):
        name = f"model.layers.{layer}"
        heads = {"q_proj": _QUERY_HEADS, "k_proj": _KEY_HEADS, "v_proj": _KEY_HEADS}
        for projection, count in heads.items():
            yield from draw.linear(
                f"{name}.self_attn.{projection}", hidden, count * _HEAD, bias=False
            )
        yield from draw.linear(f"{name}.self_attn.o_proj", _QUERY_HEADS * _HEAD, hidden, bias=False)
        yield f"{name}.self_attn.q_norm.weight", _ones(_HEAD)
        yield f"{name}.self_attn.k_norm.weight", _ones(_HEAD)
        for gate in ("gate_proj", "up_proj"):
            yield from draw.linear(f"{name}.mlp.{gate}", hidden, 2 * hidden, bias=False)
        yield from draw.linear(f"{name}.mlp.down_proj", 2 * hidden, hidden, bias=False)
        yield f"{name}.input_layernorm.weight", _ones(hidden)
        yield f"{name}.post_attention_layernorm.weight", _ones(hidden)
    yield "model.norm.weight", _ones(hidden)


def _tiny_autoencoder(draw: _Draw) -> Tensors:
    """TAESD: layers are numbered as they stand in a sequence; some of them have no weights."""
    yield from _tiny_encoder(draw)
    yield from _tiny_decoder(draw)


def _tiny_encoder(draw: _Draw) -> Tensors:
    channels, name = _TAESD_CHANNELS, "encoder.layers"
    yield from draw.convolution(f"{name}.0", 3, channels)
    yield from _tiny_block(draw, f"{name}.1")
    at = 2
    for _ in range(3):
        yield from draw.bare_convolution(f"{name}.{at}", channels)
        for block in range(1, _TAESD_BLOCKS + 1):
            yield from _tiny_block(draw, f"{name}.{at + block}")
        at += _TAESD_BLOCKS + 1
    yield from draw.convolution(f"{name}.{at}", channels, _LATENT_CHANNELS)


def _tiny_decoder(draw: _Draw) -> Tensors:
    channels, name = _TAESD_CHANNELS, "decoder.layers"
    yield from draw.convolution(f"{name}.0", _LATENT_CHANNELS, channels)
    at = 2  # after an activation
    for _ in range(3):
        for block in range(_TAESD_BLOCKS):
            yield from _tiny_block(draw, f"{name}.{at + block}")
        at += _TAESD_BLOCKS + 1  # and what doubles the size
        yield from draw.bare_convolution(f"{name}.{at}", channels)
        at += 1
    yield from _tiny_block(draw, f"{name}.{at}")
    yield from draw.convolution(f"{name}.{at + 1}", channels, 3, gain=0.5)


def _tiny_block(draw: _Draw, name: str) -> Tensors:
    for layer in (0, 2, 4):
        yield from draw.convolution(
            f"{name}.conv.{layer}", _TAESD_CHANNELS, _TAESD_CHANNELS, gain=0.7
        )


def _encoder(draw: _Draw) -> Tensors:
    wide, last = _ENCODER_WIDTHS[0], len(_ENCODER_WIDTHS) - 1
    yield from draw.convolution("encoder.conv_in", 3, wide)
    for level, width in enumerate(_ENCODER_WIDTHS):
        for block in range(2):
            yield from _residual(draw, f"encoder.down.{level}.block.{block}", wide, width)
            wide = width
        if level < last:
            yield from draw.convolution(f"encoder.down.{level}.downsample.conv", wide, wide)
    yield from _middle(draw, "encoder.mid", wide)
    yield from _norm("encoder.norm_out", wide)
    yield from draw.convolution("encoder.conv_out", wide, 2 * _LATENT_CHANNELS)


def _decoder(draw: _Draw) -> Tensors:
    wide = _DECODER_WIDTHS[-1]
    yield from draw.convolution("decoder.conv_in", _LATENT_CHANNELS, wide)
    yield from _middle(draw, "decoder.mid", wide)
    for level, width in reversed(tuple(enumerate(_DECODER_WIDTHS))):
        for block in range(3):
            yield from _residual(draw, f"decoder.up.{level}.block.{block}", wide, width)
            wide = width
        if level:
            yield from draw.convolution(f"decoder.up.{level}.upsample.conv", wide, wide)
    yield from _norm("decoder.norm_out", wide)
    yield from draw.convolution("decoder.conv_out", wide, 3)


def _middle(draw: _Draw, name: str, wide: int) -> Tensors:
    yield from _residual(draw, f"{name}.block_1", wide, wide)
    yield from _norm(f"{name}.attn_1.norm", wide)
    for part in ("q", "k", "v", "proj_out"):
        yield from draw.convolution(f"{name}.attn_1.{part}", wide, wide, kernel=1)
    yield from _residual(draw, f"{name}.block_2", wide, wide)


def _residual(draw: _Draw, name: str, inputs: int, outputs: int) -> Tensors:
    yield from _norm(f"{name}.norm1", inputs)
    yield from draw.convolution(f"{name}.conv1", inputs, outputs)
    yield from _norm(f"{name}.norm2", outputs)
    yield from draw.convolution(f"{name}.conv2", outputs, outputs)
    if inputs != outputs:
        yield from draw.convolution(f"{name}.nin_shortcut", inputs, outputs, kernel=1)


def _norm(name: str, channels: int) -> Tensors:
    yield f"{name}.weight", _ones(channels)
    yield f"{name}.bias", np.zeros(channels, np.float32)


def _lora(draw: _Draw, layers: dict[str, tuple[int, int]], rank: int) -> Tensors:
    for layer, (inputs, outputs) in layers.items():
        name = f"lora_unet_{layer}"
        yield f"{name}.lora_down.weight", draw.weight(rank, inputs)
        yield f"{name}.lora_up.weight", draw.weight(outputs, rank, gain=2.0)
        yield f"{name}.alpha", np.full(1, rank, np.float32)


def _save(path: Path, tensors: Tensors) -> None:
    """Safetensors: the length of a JSON header, the header, then the data it points into."""
    header: dict[str, object] = {}
    data = bytearray()
    for name, tensor in tensors:
        start = len(data)
        data += np.ascontiguousarray(tensor).tobytes()
        kind = "F16" if tensor.dtype == np.float16 else "F32"
        header[name] = {
            "dtype": kind,
            "shape": list(tensor.shape),
            "data_offsets": [start, len(data)],
        }
    raw = json.dumps(header).encode()
    raw += b" " * (-len(raw) % 8)
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + data)


if __name__ == "__main__":
    make_tiny_diffusion(Path(sys.argv[1]), vae=True, lora=True)
