"""A model file's weights as 16-bit floats: the same model, computed without rounding activations.

Quantised matrix products round their inputs to 8 bits as well, so the last bit of a sum, which
depends on the order of additions, can move a logit by tenths. With weights of 16 bits it moves it
by thousandths.
"""

from pathlib import Path
from typing import Any

import gguf
import numpy as np


def make_half_precision(source: Path, target: Path) -> Path:
    """Write `source`, a GGUF file of any quantisation, to `target` with all matrices as float16."""
    reader = gguf.GGUFReader(source)
    family = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(target, family)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in {"general.architecture", "general.file_type"}:
            continue
        kind, *more = field.types
        writer.add_key_value(name, field.contents(), kind, more[-1] if more else None)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, _half(tensor))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def _half(tensor: Any) -> Any:
    full = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    # Norms are vectors, and stay as they are everywhere.
    return full.astype(np.float32 if full.ndim == 1 else np.float16)
