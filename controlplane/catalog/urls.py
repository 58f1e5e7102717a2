"""Addresses under /api/catalog/; a template is said by its organization and name."""

from django.urls import path

from controlplane.catalog import api_prices as prices
from controlplane.catalog import api_prompts as prompts

ONE = "templates/<org:organization>/<str:name>"
VERSION = f"{ONE}/versions/<int:version>"

urlpatterns = [
    path("models/<path:model>/prices", prices.Prices.as_view()),
    path("models/<path:model>/prices/end", prices.OverrideEnd.as_view()),
    path("models/<path:model>/purchases", prices.PurchasesView.as_view()),
    path("templates/<org:organization>", prompts.Prompts.as_view()),
    path(ONE, prompts.OnePrompt.as_view()),
    path(f"{ONE}/versions", prompts.Drafts.as_view()),
    path(f"{ONE}/rollback", prompts.PromptRollback.as_view()),
    path(VERSION, prompts.OneVersion.as_view()),
    path(f"{VERSION}/dry-run", prompts.PromptDryRunView.as_view()),
    path(f"{VERSION}/publish", prompts.PromptPublish.as_view()),
    path(f"{VERSION}/canary", prompts.PromptCanaryStart.as_view()),
    path(f"{VERSION}/stop", prompts.PromptCanaryStop.as_view()),
]
