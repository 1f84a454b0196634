"""Makes a tiny recurrent model with random weights: a Mamba, whose state cannot be cut or shared.

What it writes is noise; the same arguments always make the same file.
"""

from pathlib import Path

import gguf
import numpy as np

from tests.tiny_gguf import write_vocabulary

_STATE, _CONV, _STEP_RANK = 8, 4, 8


def make_tiny_mamba(path: Path, *, layers: int = 2, embd: int = 64, seed: int = 0) -> Path:
    """Write the model to `path` and return it."""
    writer, inner = gguf.GGUFWriter(str(path), "mamba"), 2 * embd
    _write_shape(writer, layers, embd, inner)
    tokens = write_vocabulary(writer)
    rng = np.random.default_rng(seed)

    def add(name: str, *shape: int, gain: float = 1.0) -> None:
        values = rng.standard_normal(shape, dtype=np.float32) * (gain / shape[-1] ** 0.5)
        matrix = len(shape) == 2 and "conv" not in name  # only these may have half precision
        writer.add_tensor(name, values.astype(np.float16) if matrix else values)

    # Strong embeddings and output rows keep the best two logits well apart.
    add("token_embd.weight", tokens, embd, gain=4.0)
    add("output.weight", tokens, embd, gain=3.0)
    writer.add_tensor("output_norm.weight", np.ones(embd, np.float32))
    for layer in range(layers):
        block = f"blk.{layer}"
        writer.add_tensor(f"{block}.attn_norm.weight", np.ones(embd, np.float32))
        add(f"{block}.ssm_in.weight", 2 * inner, embd)
        add(f"{block}.ssm_conv1d.weight", inner, _CONV)
        add(f"{block}.ssm_conv1d.bias", inner)
        add(f"{block}.ssm_x.weight", _STEP_RANK + 2 * _STATE, inner)
        add(f"{block}.ssm_dt.weight", inner, _STEP_RANK)
        add(f"{block}.ssm_dt.bias", inner)
        decay = -np.exp(0.1 * rng.standard_normal((inner, _STATE), dtype=np.float32))
        writer.add_tensor(f"{block}.ssm_a", decay)
        writer.add_tensor(f"{block}.ssm_d", np.ones(inner, np.float32))
        add(f"{block}.ssm_out.weight", embd, inner)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _write_shape(writer: gguf.GGUFWriter, layers: int, embd: int, inner: int) -> None:
    writer.add_name("tiny-random-mamba")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_context_length(4096)
    writer.add_embedding_length(embd)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_ssm_conv_kernel(_CONV)
    writer.add_ssm_inner_size(inner)
    writer.add_ssm_state_size(_STATE)
    writer.add_ssm_time_step_rank(_STEP_RANK)
