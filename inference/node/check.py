"""`--check`: load a model, make one token, say what it is. It contacts no gateway."""

import time

from inference.contract.frames import KvEvents, Step
from inference.engines.base import Engine
from inference.errors import JobRefused
from inference.node.assets import Assets
from inference.node.loading import start_engine
from inference.node.probe import Probe


class _Listener:
    """Implements `EngineEvents` for a probe alone."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe

    def on_step(self, step: Step) -> None:
        self._probe.on_step(step)

    def on_kv(self, events: KvEvents) -> None:
        pass

    def on_refused(self, request: bytes, refused: JobRefused) -> None:
        self._probe.on_refused(request, refused)

    def on_death(self, error: BaseException) -> None:
        self._probe.fail(error)


async def check(engine: Engine, assets: Assets) -> list[str]:
    """Lines of `name: value` about the model; raises `ModelError`."""
    probe = Probe(engine.facts)
    began_s = time.monotonic()
    try:
        await start_engine(engine, _Listener(probe))
        loaded_s = time.monotonic() - began_s
        probe_s = await probe.run(engine)
    finally:
        await engine.close()
    facts = engine.facts
    report = {
        "model": facts.model,
        "engine": facts.engine,
        "device": facts.device,
        "dtype": facts.dtype,
        "context_window": facts.context_window,
        "vocab_size": facts.vocab_size,
        "kv_blocks": f"{facts.kv_blocks} of {facts.block_size} tokens",
        "credits": facts.credits,
        "capabilities": " ".join(facts.capabilities),
        "tokenizer": assets.digest or "the server's own",
        "chat_template": assets.template,
        "load_s": f"{loaded_s:.2f}",
        "probe_ms": f"{probe_s * 1000:.1f}",
    }
    return [f"{name}: {value}" for name, value in report.items()]
