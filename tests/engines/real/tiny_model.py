"""A model to serve without a GPU: a random llama of two layers with the tokenizer and template of the plan.

    python -m tests.engines.real.tiny_model FOLDER

There are no weights in the folder: engines make random ones (`--load-format dummy`).
"""

import json
import sys
from pathlib import Path
from typing import Any

from services.prompt import encoder

LAYERS = 2
POSITIONS = 8_192
_ASSETS = Path(encoder.__file__).parent / "assets"


def write_tiny_model(folder: Path) -> None:
    """Writes the folder anew. Its chats are rendered and tokenized as the builtin encoder does it."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = json.loads((_ASSETS / "tokenizer.json").read_text("utf-8"))
    ids = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    end, turn_end = ids["<|endoftext|>"], ids["<|im_end|>"]
    _write(folder / "tokenizer.json", tokenizer)
    _write(
        folder / "config.json",
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 32,  # the least that vLLM takes on CPUs
            "vocab_size": len(tokenizer["model"]["vocab"]),
            "max_position_embeddings": POSITIONS,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10_000.0,
            "hidden_act": "silu",
            "tie_word_embeddings": False,
            "torch_dtype": "float32",
            "bos_token_id": end,
            "eos_token_id": turn_end,
        },
    )
    _write(folder / "generation_config.json", {"bos_token_id": end, "eos_token_id": turn_end})
    _write(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<|endoftext|>",
            "eos_token": "<|im_end|>",
            "clean_up_tokenization_spaces": False,
            "model_max_length": POSITIONS,
            "chat_template": chat_template(),
        },
    )


def chat_template() -> str:
    """The builtin template without the filter that only our encoder has; equal for texts without controls."""
    return (_ASSETS / "chat.jinja").read_text("utf-8").replace(" | plain", "")


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False), "utf-8")


if __name__ == "__main__":
    write_tiny_model(Path(sys.argv[1]))
