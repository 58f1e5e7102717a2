"""Snippets of code that pages offer."""

from frontend.shared.snippets import SNIPPETS, first_curl


def test_snippets_stream_and_take_the_key_from_the_environment() -> None:
    for snippet in SNIPPETS:
        assert "SLUICE_API_KEY" in snippet.text
        assert '"stream": true' in snippet.text or "stream=True" in snippet.text or (
            "stream: true" in snippet.text
        )  # fmt: skip
    assert first_curl("http://h", "tiny").startswith("curl -N http://h/v1/chat/completions")
