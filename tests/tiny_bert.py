"""Makes a tiny encoder with random weights: a BERT, with a rank head if one is wanted.

Its vectors are noise; their length, their order and what they depend on are real. The same
arguments always make the same file.
"""

import string
from pathlib import Path

import gguf
import numpy as np

PAD, UNK, CLS, SEP, MASK = range(5)
_CONTROLS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_WORDS = "the a river tide moon water bridge card model waits turn cat dog sat mat on in and of is"
_HEADS = 4


def vocabulary() -> list[str]:
    """WordPiece in GGUF's spelling: what begins a word is marked, what continues one is bare."""
    letters = string.ascii_lowercase + string.digits
    begins = [*letters, *string.punctuation, *_WORDS.split()]
    return [*_CONTROLS, *dict.fromkeys(f"\u2581{text}" for text in begins), *letters]


def make_tiny_bert(
    path: Path,
    *,
    context: int = 128,
    layers: int = 2,
    embd: int = 64,
    pooling: gguf.PoolingType | None = gguf.PoolingType.MEAN,
    seed: int = 0,
) -> Path:
    """Write the model to `path` and return it; `pooling` RANK adds the head of a reranker."""
    tokens, ff = vocabulary(), 2 * embd
    writer = gguf.GGUFWriter(str(path), "bert")
    _write_shape(writer, context, layers, embd, ff)
    if pooling is not None:
        writer.add_pooling_type(pooling)
    _write_vocabulary(writer, tokens)
    rng = np.random.default_rng(seed)

    def add(name: str, *shape: int, gain: float = 1.0) -> None:
        values = rng.standard_normal(shape, dtype=np.float32) * (gain / shape[-1] ** 0.5)
        kind = np.float32 if len(shape) == 1 else np.float16
        writer.add_tensor(name, values.astype(kind))

    def add_norm(name: str) -> None:
        writer.add_tensor(f"{name}.weight", np.ones(embd, np.float32))
        writer.add_tensor(f"{name}.bias", np.zeros(embd, np.float32))

    def add_layer(name: str, rows: int, columns: int, gain: float = 1.0) -> None:
        add(f"{name}.weight", rows, columns, gain=gain)
        add(f"{name}.bias", rows)

    add("token_embd.weight", len(tokens), embd, gain=4.0)
    add("position_embd.weight", context, embd, gain=2.0)
    writer.add_tensor("token_types.weight", np.zeros((2, embd), np.float32))
    add_norm("token_embd_norm")
    for layer in range(layers):
        at = f"blk.{layer}"
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add_layer(f"{at}.{name}", embd, embd)
        add_layer(f"{at}.ffn_up", ff, embd)
        add_layer(f"{at}.ffn_down", embd, ff)
        add_norm(f"{at}.attn_output_norm")
        add_norm(f"{at}.layer_output_norm")
    if pooling is gguf.PoolingType.RANK:
        add_layer("cls", embd, embd)
        add_layer("cls.output", 1, embd, gain=4.0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _write_shape(writer: gguf.GGUFWriter, context: int, layers: int, embd: int, ff: int) -> None:
    writer.add_name("tiny-random-bert")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_context_length(context)
    writer.add_embedding_length(embd)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(ff)
    writer.add_head_count(_HEADS)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(False)


def _write_vocabulary(writer: gguf.GGUFWriter, tokens: list[str]) -> None:
    control, normal = int(gguf.TokenType.CONTROL), int(gguf.TokenType.NORMAL)
    writer.add_token_type_count(2)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types([control if token in _CONTROLS else normal for token in tokens])
    writer.add_pad_token_id(PAD)
    writer.add_unk_token_id(UNK)
    writer.add_bos_token_id(CLS)
    writer.add_sep_token_id(SEP)
    writer.add_mask_token_id(MASK)
