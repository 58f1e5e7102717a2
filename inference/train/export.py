"""Writes the folder that engines load: bf16 safetensors, configuration, tokenizer, template.

The files follow Hugging Face's layout for `LlamaForCausalLM`, which vLLM reads too.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

from inference.train.model import Llama, ModelConfig
from inference.train.tokenizer import BOS, CHAT_TEMPLATE, END, PAD, SPECIAL_TOKENS, special_id

WEIGHTS_FILE = "model.safetensors"
FILE_MODE = 0o644


def config_json(config: ModelConfig, tokenizer: Tokenizer) -> dict[str, object]:
    """`config.json`, in the words of the public Llama configuration."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": config.positions_max,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
        "rope_scaling": None,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "initializer_range": 0.02,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "bos_token_id": special_id(tokenizer, BOS),
        "eos_token_id": special_id(tokenizer, END),
        "pad_token_id": special_id(tokenizer, PAD),
    }


def tokenizer_config_json(config: ModelConfig, tokenizer: Tokenizer) -> dict[str, object]:
    """`tokenizer_config.json`, with the chat template."""
    added = {
        str(special_id(tokenizer, token)): {
            "content": token,
            "lstrip": False,
            "normalized": False,
            "rstrip": False,
            "single_word": False,
            "special": True,
        }
        for token in SPECIAL_TOKENS
    }
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "added_tokens_decoder": added,
        "bos_token": BOS,
        "eos_token": END,
        "pad_token": PAD,
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": config.positions_max,
        "chat_template": CHAT_TEMPLATE,
    }


def generation_config_json(tokenizer: Tokenizer) -> dict[str, object]:
    """`generation_config.json`: what engines use when a request names no sampling."""
    return {
        "bos_token_id": special_id(tokenizer, BOS),
        "eos_token_id": special_id(tokenizer, END),
        "pad_token_id": special_id(tokenizer, PAD),
        "do_sample": True,
        "temperature": 0.7,
        "top_p": 0.95,
    }


def export(model: Llama, tokenizer: Tokenizer, folder: Path) -> None:
    """Write every file of the checkpoint except its card."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {
        name: tensor.detach().to("cpu", torch.bfloat16).contiguous()
        for name, tensor in model.state_dict().items()
    }
    save_file(weights, folder / WEIGHTS_FILE, metadata={"format": "pt"})
    (folder / WEIGHTS_FILE).chmod(FILE_MODE)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = model.config
    write_json(folder / "config.json", config_json(config, tokenizer))
    write_json(folder / "tokenizer_config.json", tokenizer_config_json(config, tokenizer))
    write_json(folder / "generation_config.json", generation_config_json(tokenizer))


def write_json(path: Path, value: dict[str, object]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")
