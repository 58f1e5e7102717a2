"""Addresses of the group's pages."""

from django.urls import path

from frontend.developers import api_views, batch_views, playground_views, prompt_views

urlpatterns = [
    path("playground", playground_views.playground, name="playground"),
    path("playground/token", playground_views.token, name="playground_token"),
    path("playground/cost/<req:request_id>", playground_views.cost, name="playground_cost"),
    path("templates", prompt_views.prompt_index, name="prompts"),
    path("templates/new", prompt_views.prompt_new, name="prompt_new"),
    path("templates/<str:name>/<int:version>", prompt_views.prompt_version, name="prompt_version"),
    path("templates/<str:name>/<int:version>/try", prompt_views.prompt_try, name="prompt_try"),
    path(
        "templates/<str:name>/<int:version>/<slug:action>",
        prompt_views.prompt_act,
        name="prompt_act",
    ),
    path("batches", batch_views.batch_index, name="batches"),
    path("batches/<batch:batch_id>/cancel", batch_views.batch_cancel, name="batch_cancel"),
    path("batches/<batch:batch_id>/<slug:kind>", batch_views.batch_file, name="batch_file"),
    path("developers", api_views.api_page, name="api_page"),
    path("developers/api", api_views.api_docs, name="api_docs"),
]
