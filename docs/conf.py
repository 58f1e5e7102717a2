"""How `make docs` builds the site: Sphinx reads the Markdown as it is, and checks every link."""

import os
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import django

from inference.contract.version import VERSION
from tests.release.reference import PAGES

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
django.setup()

project = "Sluice"
copyright = "the authors of Sluice; Apache License 2.0"
release = version = VERSION
extensions = ["myst_parser"]
exclude_patterns = ["screenshots/*.md"]
html_theme = "furo"
html_title = f"Sluice {VERSION}"
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"top_of_page_buttons": []}
# Headings are linked to as GitHub names them.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
pygments_dark_style = "github-dark"
# Fenced blocks in words that no lexer knows (bars, prompts) stay plain.
suppress_warnings = ["misc.highlighting_failure"]
# What the site does not have stays words: files of the repository, and the folder of pictures.
_OUTSIDE = re.compile(
    r"\[([^\]]+)\]\((?:\.\./)?(?:docker|benchmarks|inference|requirements|LICENSE|docs/screenshots\))[^)]*\)?"
)
_GENERATED = re.compile(r"<!-- generated: ([a-z-]+) -->")


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", lambda app, name, source: _change(source))
    app.connect("include-read", lambda app, path, parent, source: _change(source))


def _change(source: list[str]) -> None:
    text = source[0].replace("../README.md#", "site/start.md#")
    text = _OUTSIDE.sub(lambda found: found[1], text)
    source[0] = _GENERATED.sub(lambda found: PAGES[found[1]](), text)
