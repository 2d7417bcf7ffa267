"""What was asked of one run of ``limner caption`` besides the captions themselves, and what of it cannot be had."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.errors import RequestError
from serving.folders.outputs import Existing, format_of, told_by_name
from serving.folders.sources import STDIN, Sources

STDOUT = Path("-")


@dataclass(frozen=True)
class Asked:
    """Where captions go, and which processes make them."""

    out: Path | None = None
    format: str | None = None
    json_lines: bool = False
    existing: Existing = Existing.SKIP
    dedupe: bool = False
    batch_size: int = 16
    workers: int | None = None
    ray: bool = False
    actors: int | None = None
    gpus_per_actor: float | None = None

    def kind(self) -> str | None:
        """The format; None for lines on standard output.

        Raises:
            RequestError: ``invalid_request`` where the words contradict each other, or do not tell.
            UnknownNameError: there is no such format.
        """
        if self.out == STDOUT:
            if self.format not in (None, "jsonl"):
                detail = f"--out -: standard output takes text, or JSON lines by --json; name a file for {self.format}"
                raise RequestError("invalid_request", detail)
            return None
        named = told_by_name(self.out)
        if self.json_lines and self.format is None and named not in (None, "jsonl"):
            raise RequestError(
                "invalid_request",
                f"--json, but the name {str(self.out)!r} tells {named}: leave one out, or add --format",
            )
        kind = format_of(self.format or ("jsonl" if self.json_lines and self.out else None), self.out)
        if kind is not None and self.json_lines and kind != "jsonl":
            raise RequestError("invalid_request", f"--json and --format {kind}: choose one")
        return kind

    @property
    def writes_json(self) -> bool:
        """Whether standard output, if that is where lines go, gets JSON."""
        return self.json_lines or (self.out == STDOUT and self.format == "jsonl")

    def check(self, sources: Sources, *, compares: bool) -> None:
        """Refuse words that go with others only.

        Raises:
            RequestError: ``invalid_request``.
        """
        kind = self.kind()
        for wrong, why in (
            (compares and not (self.writes_json or kind == "jsonl"),
             "--compare writes JSON lines: add --json or --out FILE.jsonl"),
            (self.dedupe and self.ray,
             "--dedupe: not with --ray, whose processes do not know each other's pictures"),
            (kind == "webdataset" and STDIN in sources.paths,
             "--format webdataset reads its pictures twice, - can be read once: use a list"),
            (sources.null and STDIN not in sources.paths, "--null is of the list that - reads: name - among the paths"),
            (not self.ray and self._is_given("actors", "gpus_per_actor"),
             "--actors and --gpus-per-actor: only with --ray"),
            (self.ray and self._is_given("workers"),
             "--workers: not with --ray, whose actors open pictures themselves"),
            (self.existing is not Existing.SKIP and kind is None,
             f"--existing {self.existing}: lines on standard output have none that exist; add --out or --format"),
        ):  # fmt: skip
            if wrong:
                raise RequestError("invalid_request", why)

    def _is_given(self, *names: str) -> bool:
        values: list[Any] = [getattr(self, name) for name in names]
        return any(value is not None for value in values)
