"""Where test data lie, how a picture becomes bytes, and decorators of tests that need what a machine may lack."""

import io
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.disks import may_mount
from tests.postgres import programs

CASES = Path(__file__).resolve().parent / "cases"
SHARED = Path(__file__).resolve().parents[2] / "shared"


def encoded(image: Image.Image, format: str, **options: Any) -> bytes:
    """The file that Pillow writes of a picture."""
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def _has_gpu() -> bool:
    import torch  # only the tests that ask for a GPU pay for this import

    return torch.cuda.is_available()


@dataclass(frozen=True)
class Requirement:
    """A decorator of test functions: marks one and, where the thing is absent, skips it with a reason.

    In CI (environment ``CI=true``) absence fails the test when ``required_in_ci``, so that nothing goes untested there
    unnoticed. Fixtures call ``check()`` instead.
    """

    marker: str
    present: Callable[[], bool]
    reason: str
    required_in_ci: bool

    @property
    def _fails(self) -> bool:
        return self.required_in_ci and os.environ.get("CI") == "true"

    def check(self) -> None:
        """Skip, or in CI fail, the test that asks; do nothing where the thing is there."""
        if not self.present():
            (pytest.fail if self._fails else pytest.skip)(self.reason)

    def __call__(self, test: Callable[..., Any]) -> Callable[..., Any]:
        if self.present():
            guarded = test
        elif self._fails:

            @wraps(test)
            def guarded(*args: Any, **kwargs: Any) -> None:
                pytest.fail(self.reason)
        else:
            guarded = pytest.mark.skip(reason=self.reason)(test)
        mark: pytest.MarkDecorator = getattr(pytest.mark, self.marker)
        marked: Callable[..., Any] = mark(guarded)
        return marked


needs_shared = Requirement("shared", SHARED.is_dir, "the data folder ../shared is not beside the checkout", True)
needs_java = Requirement("java", lambda: shutil.which("java") is not None, "no `java` on the PATH", True)
needs_chromium = Requirement(
    "chromium",
    lambda: all(shutil.which(program) for program in ("chromium", "chromedriver")),
    "no `chromium` or no `chromedriver` on the PATH",
    True,
)
needs_postgres = Requirement("postgres", lambda: programs() is not None, "no PostgreSQL server is installed", True)
needs_prometheus = Requirement(
    "prometheus",
    lambda: all(map(shutil.which, ("prometheus", "promtool"))),
    "no `prometheus` and `promtool` on the PATH (Debian: apt-get install prometheus)",
    True,
)
needs_nginx = Requirement(
    "nginx",
    lambda: all(map(shutil.which, ("nginx", "curl"))),
    "no `nginx` or no `curl` on the PATH (Debian: apt-get install nginx curl)",
    True,
)
needs_systemd = Requirement(
    "systemd",
    lambda: shutil.which("systemd-analyze") is not None,
    "no `systemd-analyze` on the PATH (Debian: apt-get install systemd)",
    True,
)
needs_mount = Requirement("mount", may_mount, "this user may not mount disks", False)
needs_gpu = Requirement("gpu", _has_gpu, "no CUDA device", False)
