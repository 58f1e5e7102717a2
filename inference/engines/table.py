"""The table of engines and of their command-line options. Imports none of them: some need torch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from inference.compact.options import MEBIBYTE


@dataclass(frozen=True, kw_only=True)
class EngineEntry:
    """Names of an engine and its options for `pkgutil.resolve_name`. `model` says whether it reads
    a model folder.

    `packaged` engines have a model where none is named; `optional` ones need only its tokenizer,
    and serve without. `credits_option` bounds the jobs at once.
    `defaults` names a function of the options that were given: what others should be then.
    """

    about: str
    engine: str
    options: str
    defaults: str = ""
    credits_option: str = "running_max"
    model: Literal["folder", "packaged", "optional"] = "folder"


ENGINES = {
    "compact": EngineEntry(
        about="our own engine in torch and C, for CPUs and GPUs",
        engine="inference.engines.compact:CompactEngine",
        options="inference.compact.options:CompactOptions",
        defaults="inference.compact.load.placement:defaults_for",
    ),
    "vllm": EngineEntry(
        about="vLLM's server, started by the node",
        engine="inference.engines.vllm:VllmEngine",
        options="inference.engines.vllm:VllmOptions",
    ),
    "remote": EngineEntry(
        about="any OpenAI-compatible server, by its URL",
        engine="inference.engines.remote.engine:RemoteEngine",
        options="inference.engines.remote.server:RemoteOptions",
        credits_option="credits",
        model="optional",
    ),
    "hosted": EngineEntry(
        about="models of hosted providers, for `manage.py connector`, which writes what it serves"
        " to standard input",
        engine="inference.engines.hosted.engine:HostedEngine",
        options="inference.engines.hosted.engine:HostedOptions",
        credits_option="credits",
        model="optional",
    ),
    "embed": EngineEntry(
        about="a BERT encoder, for /v1/embeddings, /v1/rerank and /v1/score",
        engine="inference.engines.embed:EmbedEngine",
        options="inference.engines.embed:EmbedOptions",
        model="packaged",
    ),
    "echo": EngineEntry(
        about="repeats the prompt, for benchmarks",
        engine="inference.engines.echo:EchoEngine",
        options="inference.engines.echo:EchoOptions",
        credits_option="credits",
    ),
}


def mebibytes(text: str) -> int:
    """Parse a size given in MiB; the name is what argparse shows for a wrong one."""
    return int(text) * MEBIBYTE


@dataclass(frozen=True)
class EngineOption:
    """A flag that sets one field of the options of these engines; `rest`: to all that follows."""

    flag: str
    field: str
    kind: Callable[[str], Any]
    metavar: str
    engines: tuple[str, ...]
    help: str
    rest: bool = False


LOCAL = ("compact", "embed")
OF_ONE_MODEL = tuple(each for each in ENGINES if each != "hosted")
ENGINE_OPTIONS = (
    EngineOption("--model-name", "name", str, "NAME", OF_ONE_MODEL,
        "what the model is offered as (default: its folder's name, or --upstream-model)"),
    EngineOption("--device", "device", str, "NAME", ("compact", "embed"), "auto, cpu or cuda"),
    EngineOption("--dtype", "dtype", str, "NAME", LOCAL, "auto, bfloat16 or float32"),
    EngineOption("--threads", "threads", int, "N", LOCAL, "CPU threads"),
    EngineOption("--kv-mib", "kv_bytes", mebibytes, "N", ("compact",),
        "size of the KV cache in MiB, taken at the start (default on a GPU: what is left)"),
    EngineOption("--gpu-memory", "gpu_memory", float, "SHARE", ("compact",),
        "share of a GPU's memory that may be in use, its KV cache included (default: 0.9)"),
    EngineOption("--block-size", "block_size", int, "N", ("compact", "echo"),
        "tokens per KV block"),
    EngineOption("--step-tokens", "step_tokens", int, "N", ("compact", "embed"),
        "tokens of one step at most"),
    EngineOption("--mixed-tokens", "mixed_prefill_tokens", int, "N", ("compact",),
        "prompt tokens of a step at most while other requests decode"),
    EngineOption("--mixed-ms", "mixed_ms", int, "MS", ("compact",),
        "what a step with prompts should take while others wait (default: by one without)"),
    EngineOption("--kernels", "kernels", str, "NAME", ("compact",),
        "auto, native (our C code) or torch"),
    EngineOption("--quantize", "quantize", str, "NAME", ("compact",),
        "round weights as they are read: int8, int4 (native code only), fp8 (torch only) or off"),
    EngineOption("--kv-dtype", "kv_dtype", str, "NAME", ("compact",),
        "keys and values in the cache: auto (--dtype), int8 (native code only) or fp8 (by torch)"),
    EngineOption("--overlap", "overlap", str, "WHEN", ("compact",),
        "plan a step while the one before is computed: auto (on a GPU), on or off"),
    EngineOption("--speculate", "speculate", str, "WHEN", ("compact",),
        "draft tokens by prompt lookup: auto (while it pays), on or off"),
    EngineOption("--drafts", "drafts_max", int, "N", ("compact",),
        "tokens drafted per stream and step when speculating"),
    EngineOption("--vllm-args", "args", str, "...", ("vllm",),
        "the rest of the line: arguments of `vllm serve`, such as --tensor-parallel-size 2",
        rest=True),
    EngineOption("--url", "url", str, "URL", ("remote",),
        "the server, such as http://127.0.0.1:8001/v1; its key is read from SLUICE_UPSTREAM_KEY"),
    EngineOption("--upstream-model", "upstream_model", str, "NAME", ("remote",),
        "what the server calls the model (default: --model-name)"),
    EngineOption("--context-window", "context_window", int, "TOKENS", ("remote",),
        "required where the server's list of models does not have it"),
    EngineOption("--output-field", "output_field", str, "NAME", ("remote",),
        "max_tokens, or max_completion_tokens for servers that take only that"),
    EngineOption("--vision", "vision", str, "WHEN", ("remote",),
        "whether it takes images: on, off, or auto (where its list of models says so)"),
    EngineOption("--server", "server", str, "KIND", ("remote",),
        "vllm, sglang, llama.cpp, ollama, tgi, anthropic, azure, openai or other (default: by what"
        " it answers)"),
    EngineOption("--kv-events", "kv_events", str, "ADDRESS[,ADDRESS]", ("remote",),
        "where vLLM or SGLang publishes cache events, such as tcp://127.0.0.1:5557, and replays"
        " them"),
    EngineOption("--kv-role", "kv_role", str, "ROLE", ("vllm", "remote"),
        "prefill or decode: vLLM is configured to hand over prompts, or to take them over"),
    EngineOption("--connect-timeout", "connect_timeout_s", float, "SECONDS", ("remote",),
        "until the server takes the connection (default: 5)"),
    EngineOption("--first-byte-timeout", "first_byte_timeout_s", float, "SECONDS", ("remote",),
        "the most until it begins to answer (default: 120); learned below that"),
    EngineOption("--first-byte-floor", "first_byte_floor_s", float, "SECONDS", ("remote",),
        "the least that is learned for it (default: 60)"),
    EngineOption("--idle-timeout", "idle_timeout_s", float, "SECONDS", ("remote",),
        "the longest silence in an answer (default: 60); learned below that"),
    EngineOption("--idle-floor", "idle_floor_s", float, "SECONDS", ("remote",),
        "the least that is learned for it (default: 30)"),
    EngineOption("--tokens-per-s", "tokens_per_s", float, "N", ("echo",), "pace of each stream"),
    EngineOption("--tokens-per-step", "tokens_per_step", int, "N", ("echo",), "tokens per step"),
)  # fmt: skip
