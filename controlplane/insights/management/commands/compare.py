"""`manage.py sluice compare`: the four-way comparison on this deployment, kept and printed."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from controlplane.core.arguments import arguments_named
from controlplane.core.audit.entries import OPERATOR
from controlplane.insights import compare as bounds
from controlplane.insights.client import checked_url, gateway_url, key_from_environment
from controlplane.insights.comparisons import cards_of, compared_models, comparison_save
from controlplane.insights.load.setup import API_PATH
from controlplane.insights.load.wire import LoadClient
from controlplane.kernel.ids import public_id
from controlplane.kernel.money import usd_text

US_PER_MS = 1_000
BOUNDS: dict[str, tuple[type, float, float, str]] = {
    "requests": (int, bounds.REQUESTS_DEFAULT, bounds.REQUESTS_MAX, "requests per way"),
    "seconds": (
        float,
        bounds.SECONDS_DEFAULT,
        bounds.SECONDS_MAX,
        "time limit per way for starting requests",
    ),
    "output-tokens": (int, bounds.OUTPUT_DEFAULT, bounds.OUTPUT_MAX, "longest answer"),
    "words": (
        int,
        bounds.WORDS_DEFAULT,
        bounds.WORDS_MAX,
        "length of the passages in the whole prompt",
    ),
}


class Command(BaseCommand):
    """Drives the gateway's own API with a key; its requests are charged like any other."""

    help = "Compare four ways to call this deployment: latency, first token, cost of the output."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--url", help="gateway URL (default: the local Sluice)")
        parser.add_argument(
            "--large", help="model of the first three ways (default: the most expensive)"
        )
        parser.add_argument("--small", help="model of the last way (default: the cheapest)")
        for name, (kind, default, most, words) in BOUNDS.items():
            told = f"{words}, 1 to {most:g} ({default:g})"
            parser.add_argument(f"--{name}", type=kind, default=default, help=told)

    def handle(self, *args: Any, **options: Any) -> None:
        for name, (_, _, most, _) in BOUNDS.items():
            if not 1 <= options[name.replace("-", "_")] <= most:
                raise CommandError(f"--{name} is 1 to {most:g}.")
        with arguments_named(large="--large", small="--small"):
            large, small = compared_models(
                actor=OPERATOR, large=options["large"], small=options["small"]
            )
        setup = bounds.Setup(
            large=large,
            small=small,
            **{name.replace("-", "_"): options[name.replace("-", "_")] for name in BOUNDS},
        )
        if large == small:
            self.stdout.write(f"Only {large} is compared: no smaller model is served at a price.")
        url = checked_url(gateway_url(options["url"])) + API_PATH
        client = LoadClient(url, key_from_environment())
        try:
            ways = bounds.compare(setup, client, cards_of(actor=OPERATOR), done=self._show)
        except bounds.Refused as error:
            raise CommandError(f"No answer: {error}") from error
        kept = comparison_save(actor=OPERATOR, setup=setup, ways=ways)
        self.stdout.write(
            f"Saved as {public_id('comparison', kept.id)}; see Comparison on the Insights page."
        )

    def _show(self, way: bounds.WayResult) -> None:
        latency, first = way.latency_p50_us / US_PER_MS, way.ttft_p50_us / US_PER_MS
        cost = way.per_thousand_nano
        self.stdout.write(
            f"{way.label} ({way.models}): {way.requests} answered, {way.failed} failed,"
            f" p50 {latency:,.0f} ms, first token {first:,.0f} ms,"
            f" {way.tokens_each:.0f} tokens each,"
            f" {'–' if cost is None else usd_text(cost)} USD per 1,000 output tokens"
        )
        for told in way.told:
            self.stdout.write(f"  {told}")
        self.stdout.flush()
