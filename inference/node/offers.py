"""What a node tells gateways of the models that it serves."""

from inference.contract.capabilities import Capability
from inference.contract.frames import ModelOffer, Offers
from inference.engines.base import EngineFacts


def offers_of(facts: EngineFacts, digest: str) -> Offers:
    """All models of an engine, whose assets have this digest, and what it can; what takes token
    ids is given several prompts at a time by the node itself.
    """
    prompts = [Capability.PROMPTS] if Capability.TOKENS in facts.capabilities else []
    models = [
        ModelOffer(
            name=name,
            digest=digest,
            context_window=window,
            vocab_size=facts.vocab_size,
            dimensions=list(facts.dimensions),
            adapter=name in facts.adapters,
        )
        for name, window in facts.offered
    ]
    return Offers(models=models, capabilities=[*facts.capabilities, *prompts])
