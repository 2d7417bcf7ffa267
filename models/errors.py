"""Every error that limner raises on purpose.

    LimnerError                   code, detail
    ├── ImageError                one picture cannot be used
    ├── RequestError              a request or an option is malformed or not allowed
    ├── UnknownNameError          a model, family, strategy, ... that does not exist
    ├── CheckpointError           a checkpoint folder is incomplete, damaged or does not fit
    ├── DataError                 a dataset or a recipe cannot be used
    ├── ExperimentError           an experiments file or the ledger cannot be used
    ├── OverloadedError           no room, too often, too late, or shutting down
    └── MissingDependencyError    an optional package or program is absent

``code`` is stable: clients may branch on it. ``detail`` names the input and the fix, for people.
"""

from typing import ClassVar


class LimnerError(Exception):
    """Base of the tree. ``codes`` lists every code that a class may carry."""

    codes: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, code: str, detail: str) -> None:
        if code not in self.codes:
            raise ValueError(f"{type(self).__name__} has no code {code!r}; it has {sorted(self.codes)}")
        super().__init__(code, detail)  # both, so that the error survives pickling between processes
        self.code = code
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.code}: {self.detail}"


class ImageError(LimnerError):
    codes = frozenset(
        {
            "empty",
            "not_an_image",
            "unsupported_format",
            "truncated",
            "too_large",
            "too_small",
            "bad_base64",
            "url_refused",
            "url_failed",
            "unreadable",  # a file that the operating system refuses to read
        }
    )


class RequestError(LimnerError):
    codes = frozenset(
        {
            "malformed_json",
            "malformed_body",
            "invalid_request",
            "unsupported_option",
            "unsupported_media_type",
            "body_too_large",
            "body_timeout",
            "unauthorized",
        }
    )


class UnknownNameError(LimnerError):
    codes = frozenset({"unknown_model", "unknown_name", "unknown_experiment", "unknown_vote_target"})


class CheckpointError(LimnerError):
    codes = frozenset({"bad_card", "missing_file", "hash_mismatch", "wrong_keys", "bad_config", "unsafe_file"})


class DataError(LimnerError):
    codes = frozenset(
        {"not_json", "wrong_schema", "no_data", "missing_image", "bad_recipe", "missing_ids", "not_finite"}
    )


class ExperimentError(LimnerError):
    codes = frozenset({"bad_experiments", "bad_ledger"})


class OverloadedError(LimnerError):
    """``retry_after_s``: when to come again, where it can be estimated; else the edge has a default for the code.
    ``full_for_s``: how long there will be little room, and the queue will not run empty all the same.
    """

    codes = frozenset({"queue_full", "rate_limited", "deadline_exceeded", "shutting_down", "unavailable"})

    def __init__(self, code: str, detail: str, retry_after_s: int | None = None, *, full_for_s: float = 0.0) -> None:
        super().__init__(code, detail)
        self.retry_after_s = retry_after_s  # pickled with the attributes; ``args`` stay code and detail
        self.full_for_s = full_for_s


class MissingDependencyError(LimnerError):
    codes = frozenset({"missing_dependency"})
