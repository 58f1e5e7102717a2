"""What a connector serves: lines of JSON that its parent writes; arguments would show secrets."""

import logging

import msgspec

from inference.contract.frames import MODELS_MAX
from inference.engines.remote.kinds import KINDS
from inference.engines.remote.server import RemoteOptions

log = logging.getLogger(__name__)

HOSTED_KINDS = ("openai", "azure", "anthropic", "other")
LINE_BYTES_MAX = 4 * 1024 * 1024
SILENCE_S_MAX = 300.0
# Floor and ceiling of what is learned.
SILENCE_S = (60.0, SILENCE_S_MAX)
# Of OpenAI's and Azure's chats only the newer name of the bound covers models that think.
OUTPUT_FIELD = {"openai": "max_completion_tokens", "azure": "max_completion_tokens"}


class Account(msgspec.Struct, frozen=True):
    """A key of a provider; `id` names it in logs."""

    id: str
    secret: str

    def __repr__(self) -> str:
        return f"Account({self.id!r})"


class HostedModel(msgspec.Struct, frozen=True):
    """`name` is what gateways call it, `upstream` what the provider does; sizes in tokens."""

    name: str
    upstream: str
    context_window: int
    max_output: int = 0
    vision: bool = False


class Connection(msgspec.Struct, frozen=True):
    """Keys of one address of a provider, and the models that it serves there."""

    name: str
    kind: str
    url: str
    keys: tuple[Account, ...]
    models: tuple[HostedModel, ...]
    api_version: str = ""
    region: str = ""

    def options(
        self,
        model: HostedModel,
        key: Account,
        credits: int,
        silence_s: tuple[float, float] = SILENCE_S,
    ) -> RemoteOptions:
        """Of the one model with the one key; raises ValueError."""
        floor_s, ceiling_s = silence_s
        url = self.url
        if self.kind == "azure" and self.api_version:
            url = f"{url.rstrip('/')}/openai/deployments/{model.upstream}"
        return RemoteOptions(
            url=url,
            name=model.name,
            upstream_model=model.upstream,
            context_window=model.context_window,
            credits=credits,
            output_field=OUTPUT_FIELD.get(self.kind, "max_tokens"),
            vision="on" if model.vision else "off",
            server=self.kind,
            api_version=self.api_version,
            # Some send nothing while a model thinks.
            first_byte_timeout_s=ceiling_s,
            idle_timeout_s=ceiling_s,
            first_byte_floor_s=floor_s,
            idle_floor_s=floor_s,
            key=key.secret,
        )


class HostedConfiguration(msgspec.Struct, frozen=True):
    """All connections; a model in several is one, balanced over them. `silence_s` are floor and
    ceiling of how long a provider may be silent.
    """

    connections: tuple[Connection, ...]
    silence_s: tuple[float, float] = SILENCE_S

    @property
    def windows(self) -> dict[str, int]:
        """Names of its models, with what each connection of one takes."""
        found: dict[str, int] = {}
        for model in (each for one in self.connections if one.keys for each in one.models):
            known = found.get(model.name, model.context_window)
            found[model.name] = min(known, model.context_window)
        return found


def read_configuration(line: bytes, *, credits: int) -> HostedConfiguration:
    """Raises ValueError, which names the field and quotes no secret."""
    found = msgspec.json.decode(line, type=HostedConfiguration)
    if not 0 < found.silence_s[0] <= found.silence_s[1] <= SILENCE_S_MAX:
        raise ValueError(f"silence_s: must be two rising numbers of at most {SILENCE_S_MAX:g}")
    names = [each.name for each in found.connections]
    if len(set(names)) != len(names):
        raise ValueError("connections: a name occurs twice")
    kept: list[Connection] = []
    for connection in found.connections:
        try:
            _check(connection, credits)
        except ValueError as error:
            # The others are served all the same: a key that was taken back is in none of them.
            log.error("connections[%r] is left out: %s", connection.name, error)
        else:
            kept.append(connection)
    configuration = HostedConfiguration(tuple(kept), found.silence_s)
    if len(configuration.windows) > MODELS_MAX:
        raise ValueError(f"connections: more than {MODELS_MAX} models")
    return configuration


def _check(connection: Connection, credits: int) -> None:
    if connection.kind not in HOSTED_KINDS or connection.kind not in KINDS:
        raise ValueError(f"kind: must be one of {', '.join(HOSTED_KINDS)}")
    for model in connection.models:
        for key in connection.keys:
            connection.options(model, key, credits)
