"""Makes a tiny language model with random weights, which the real library loads in milliseconds.

    python tests/tiny_gguf.py OUT [--layers 2 --embd 64 ...]

It is a llama with a byte-level BPE vocabulary, so any text round-trips, and ChatML as its chat
template. What it writes is noise; that it writes, how fast, and when it stops is real. The same
arguments always make the same file.
"""

import argparse
from collections import Counter
from itertools import pairwise
from pathlib import Path

import gguf
import numpy as np

ENDOFTEXT, IM_START, IM_END = range(3)
CONTROLS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_CORPUS = """the house of many models has one card and each of them waits its turn to think on it
a scheduler asks the broker for memory and the broker lends what there is and takes it back again
please write a short story about a river and a bridge, then explain how the tide moves the water
system user assistant tool hello world yes no one two three four five six seven eight nine ten"""


def _letters() -> list[str]:
    """The printable stand-in for each byte that GPT-2's vocabularies use."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def _merges(count: int, letters: list[str]) -> list[tuple[str, str]]:
    """The `count` most useful pairs of the corpus, by byte-pair encoding."""
    words: Counter[tuple[str, ...]] = Counter()
    for line in _CORPUS.splitlines():
        for text in line.replace(" ", "\n ").splitlines():
            words[tuple(letters[byte] for byte in text.encode())] += 1
    merges: list[tuple[str, str]] = []
    while len(merges) < count:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, times in words.items():
            for pair in pairwise(word):
                pairs[pair] += times
        if not pairs:
            break
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        words = Counter({_joined(word, best): times for word, times in words.items()})
    return merges


def _joined(word: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    parts: list[str] = []
    for letter in word:
        if parts and (parts[-1], letter) == pair:
            parts[-1] += letter
        else:
            parts.append(letter)
    return tuple(parts)


def make_tiny_gguf(
    path: Path,
    *,
    context: int = 4096,
    layers: int = 2,
    embd: int = 64,
    heads: int = 4,
    kv_heads: int = 2,
    ff: int = 128,
    merges: int = 200,
    seed: int = 0,
    template: str | None = TEMPLATE,
    weights: bool = True,
    more_controls: tuple[str, ...] = (),
) -> Path:
    """Write the model to `path` and return it. `weights=False` leaves the blocks' tensors out;
    `more_controls` are control tokens behind all others.
    """
    writer = gguf.GGUFWriter(str(path), "llama")
    _write_shape(writer, context, layers, embd, heads, kv_heads, ff)
    tokens = write_vocabulary(writer, merges, more_controls)
    if template is not None:
        writer.add_chat_template(template)
    rng = np.random.default_rng(seed)

    def add(name: str, rows: int, columns: int, gain: float = 1.0) -> None:
        values = rng.standard_normal((rows, columns), dtype=np.float32)
        writer.add_tensor(f"{name}.weight", (values * (gain / columns**0.5)).astype(np.float16))

    # Strong embeddings and output rows keep the best two logits well apart.
    add("token_embd", tokens, embd, 4.0)
    add("output", tokens, embd, 3.0)
    writer.add_tensor("output_norm.weight", np.ones(embd, np.float32))
    width = embd // heads * kv_heads
    shapes = {"attn_q": (embd, embd), "attn_k": (width, embd), "attn_v": (width, embd)}
    shapes |= {"attn_output": (embd, embd), "ffn_gate": (ff, embd), "ffn_up": (ff, embd)}
    shapes |= {"ffn_down": (embd, ff)}
    for layer in range(layers if weights else 0):
        for name, (rows, columns) in shapes.items():
            add(f"blk.{layer}.{name}", rows, columns)
        for norm in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{norm}.weight", np.ones(embd, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _write_shape(
    writer: gguf.GGUFWriter,
    context: int,
    layers: int,
    embd: int,
    heads: int,
    kv_heads: int,
    ff: int,
) -> None:
    writer.add_name("tiny-random")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_context_length(context)
    writer.add_embedding_length(embd)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(ff)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(embd // heads)


def write_vocabulary(
    writer: gguf.GGUFWriter, merges: int = 200, more_controls: tuple[str, ...] = ()
) -> int:
    """How many tokens it has."""
    letters, controls = _letters(), {*CONTROLS, *more_controls}
    pairs = _merges(merges, letters)
    tokens = [*CONTROLS, *letters, *(left + right for left, right in pairs), *more_controls]
    control, normal = int(gguf.TokenType.CONTROL), int(gguf.TokenType.NORMAL)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([control if token in controls else normal for token in tokens])
    writer.add_token_merges([f"{left} {right}" for left, right in pairs])
    writer.add_bos_token_id(ENDOFTEXT)
    writer.add_eos_token_id(IM_END)
    writer.add_add_bos_token(False)
    return len(tokens)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("out", type=Path)
    for name, default in (
        ("context", 4096),
        ("layers", 2),
        ("embd", 64),
        ("heads", 4),
        ("kv-heads", 2),
        ("ff", 128),
        ("merges", 200),
        ("seed", 0),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = vars(parser.parse_args())
    make_tiny_gguf(options.pop("out"), **options)


if __name__ == "__main__":
    main()
