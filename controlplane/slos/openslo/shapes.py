"""The part of OpenSLO v1 that is read: one SLO with an inline ratio that gateways can count."""

from typing import Any

import msgspec

from controlplane.kernel.objectives.counting import IndicatorPart

VERSION = "openslo/v1"
SOURCE = "sluice"


class OpenSloShape(msgspec.Struct, rename="camel"):
    """Fields as OpenSLO writes them; what is not ours to know is passed over."""


class Metadata(OpenSloShape):
    """A name for programs, one for people, and annotations."""

    name: str
    display_name: str = ""
    annotations: dict[str, Any] = {}


class Query(msgspec.Struct, forbid_unknown_fields=True):
    """What gateways count, in the words of our own API."""

    indicator: str
    threshold: int = 0
    route: str = ""
    model: str = ""
    project: str = ""
    pool: str = ""
    region: str = ""
    prompt_bucket: int = -1
    parts: tuple[IndicatorPart, ...] = ()


class MetricSource(OpenSloShape):
    type: str
    spec: Query


class OpenSloMetric(OpenSloShape):
    """Good, or total."""

    metric_source: MetricSource


class Ratio(OpenSloShape):
    """Good of total."""

    good: OpenSloMetric
    total: OpenSloMetric


class IndicatorSpec(OpenSloShape):
    """A ratio; a threshold on a series has no requests to count."""

    ratio_metric: Ratio


class Indicator(OpenSloShape):
    """An indicator inside its SLO."""

    spec: IndicatorSpec


class TimeWindow(OpenSloShape):
    """A period that ends now."""

    duration: str
    is_rolling: bool = False


class OpenSloTarget(OpenSloShape):
    """The share that is promised."""

    target: float


class Policy(OpenSloShape):
    """An alert policy inside its SLO; its name is a rule's."""

    metadata: Metadata


class Spec(OpenSloShape):
    indicator: Indicator
    time_window: list[TimeWindow]
    objectives: list[OpenSloTarget]
    budgeting_method: str = "Occurrences"
    alert_policies: list[Policy] | None = None


class Slo(OpenSloShape):
    api_version: str
    kind: str
    metadata: Metadata
    spec: Spec
