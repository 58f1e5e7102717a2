"""The catalogue under /api/catalog/models, for staff: adding, changing, switching, naming and
removing models. Prices are in `catalog`.
"""

from typing import Any, TypedDict

import msgspec
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.catalog.models import Model
from controlplane.catalog.selectors import model_list
from controlplane.catalog.services import ModelDraft, model_change, model_create, model_enable
from controlplane.connections.discard import model_discard
from controlplane.core.answers import answer_of
from controlplane.core.api.schema import CREATED, Whole, operation
from controlplane.core.api.views import ApiView
from controlplane.core.permissions import Action
from controlplane.routing.aliases import alias_add, alias_remove, aliases_of
from controlplane.tenants.access import require

SIZES = {"pool": "default", "context_window": 32_768, "output_tokens_max": 4_096}
EXAMPLE = {"name": "large", "output_tokens_default": 512, **SIZES}


class ModelChangeBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What a model is; sizes in tokens, `images_max` 0 where it does not see."""

    pool: str
    context_window: int
    output_tokens_default: int = 0
    output_tokens_max: int = 0
    images_max: int = 0
    image_tokens_max: int = 1_280
    image_patch: int = 28
    owner: str = "sluice"


class NewModelBody(ModelChangeBody, kw_only=True, forbid_unknown_fields=True):
    """The same of a new one; neither its name nor its task ever changes."""

    name: str
    task: str = "generate"


class SwitchBody(msgspec.Struct, forbid_unknown_fields=True):
    """Whether requests for it are served."""

    enabled: bool


class AliasBody(msgspec.Struct, forbid_unknown_fields=True):
    """A further name of a model."""

    alias: str


class AliasesJson(TypedDict):
    """Further names of a model, in force now."""

    model: str
    aliases: list[str]


class CatalogueEntryJson(TypedDict):
    """A model as it is configured."""

    name: str
    object: str
    task: str
    enabled: bool
    pool: str
    context_window: int
    output_tokens_default: int
    output_tokens_max: int
    images_max: int
    image_tokens_max: int
    image_patch: int
    owner: str


class CatalogueView(ApiView, under="api/catalog/models"):
    """Rights come before bodies."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        require(self.actor(), Action.CATALOG_MANAGE)

    def model(self) -> Model:
        return Model.objects.get(name=self.kwargs["model"], removed_at=None)

    def aliases(self) -> AliasesJson:
        name = self.model().name
        return AliasesJson(model=name, aliases=aliases_of(name))


class Catalogue(CatalogueView, at=""):
    @operation(list_of=Whole(CatalogueEntryJson))
    def get(self) -> Response:
        """List all models, also those that are switched off."""
        return self.listed(model_list(), entry_json, "name")

    @operation(
        body=NewModelBody, answer={CREATED: CatalogueEntryJson}, example=EXAMPLE, step_up=True
    )
    def post(self, wanted: NewModelBody) -> CatalogueEntryJson:
        """Add a model; it is served once it has a price and a node."""
        draft = ModelDraft(**msgspec.structs.asdict(wanted))
        return entry_json(model_create(actor=self.actor(), draft=draft))


class CatalogueEntry(CatalogueView, at="/<path:model>/definition"):
    @operation(body=ModelChangeBody, answer=CatalogueEntryJson, example=SIZES, step_up=True)
    def put(self, wanted: ModelChangeBody) -> CatalogueEntryJson:
        """Change a model."""
        known = self.model()
        draft = ModelDraft(name=known.name, task=known.task, **msgspec.structs.asdict(wanted))
        return entry_json(model_change(actor=self.actor(), draft=draft))


class CatalogueSwitch(CatalogueView, at="/<path:model>/enabled"):
    @operation(body=SwitchBody, answer=CatalogueEntryJson, example={"enabled": False}, step_up=True)
    def put(self, wanted: SwitchBody) -> CatalogueEntryJson:
        """Switch a model on or off."""
        model = self.model()
        return entry_json(model_enable(actor=self.actor(), model=model, enabled=wanted.enabled))


class CatalogueRemoval(CatalogueView, at="/<path:model>/remove"):
    @operation(step_up=True)
    def post(self) -> Response:
        """Remove a model that no rule, connection or node needs."""
        model_discard(actor=self.actor(), model=self.model())
        return Response(status=204)


class CatalogueAliases(CatalogueView, at="/<path:model>/aliases"):
    @operation(answer=AliasesJson)
    def get(self) -> AliasesJson:
        """List the aliases of a model."""
        return self.aliases()

    @operation(
        body=AliasBody, answer={CREATED: AliasesJson}, example={"alias": "fast"}, step_up=True
    )
    def post(self, wanted: AliasBody) -> AliasesJson:
        """Add an alias; publishes the routing rules with it."""
        alias_add(actor=self.actor(), model=self.model(), alias=wanted.alias)
        return self.aliases()


class CatalogueAliasEnd(CatalogueView, at="/<path:model>/aliases/end"):
    @operation(body=AliasBody, answer=AliasesJson, example={"alias": "fast"}, step_up=True)
    def post(self, wanted: AliasBody) -> AliasesJson:
        """End an alias; publishes the routing rules without it."""
        alias_remove(actor=self.actor(), model=self.model(), alias=wanted.alias)
        return self.aliases()


def entry_json(model: Model) -> CatalogueEntryJson:
    return answer_of(CatalogueEntryJson, model, object="catalogue_entry")
