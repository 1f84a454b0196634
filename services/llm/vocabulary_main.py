"""A process that knows the tokens of a model that is not loaded: native code, but no weights.

It is born and watched like an engine, but holds no lease, admits nobody and runs no model.
"""

import asyncio
from pathlib import Path

from chassis.server import service_name
from cohabit.llm.v1 import llm_pb2, llm_pb2_grpc
from cohabit.models.v1 import models_pb2
from hosting.engine_side import EngineProcess, run_engine
from services.llm.engine_servicer import VocabularyServicer


async def load(process: EngineProcess) -> models_pb2.EngineReady:
    """Read the vocabulary on a thread and serve it. Raises Fault MODEL_FAILED."""
    from services.llm.lexicon import Lexicon  # noqa: PLC0415 - heavy, and only here
    from services.llm.tokenizer import Tokenizer  # noqa: PLC0415

    path, context_tokens, writes = (
        process.birth.engine[name] for name in ("path", "context_tokens", "writes")
    )
    tokenizer = await asyncio.to_thread(Tokenizer.open, Path(path))
    lexicon = Lexicon(tokenizer, context_tokens, writes)
    llm_pb2_grpc.add_LanguageModelServiceServicer_to_server(
        VocabularyServicer(process.birth.key, lambda: lexicon), process.server.grpc
    )
    await process.server.start(process.birth.address)
    return models_pb2.EngineReady(
        capabilities=models_pb2.Capabilities(context_tokens=context_tokens)
    )


if __name__ == "__main__":
    run_engine((service_name(llm_pb2, "LanguageModelService"),), load)
