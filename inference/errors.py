"""What an engine may raise."""


class JobRefused(Exception):
    """The engine cannot take this job. `code` is one of those of the `Rejected` frame."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class ModelError(Exception):
    """A checkpoint that cannot be served; the message names the file or field."""
