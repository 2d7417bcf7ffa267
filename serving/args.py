"""What the application is started with: ``build_app`` takes it from Python, a Serve config file or the command line."""

import re
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from models.catalog import DEFAULT_MODEL, DEFAULT_SCORER
from models.drafting import DRAFT_BY_DEFAULT
from serving.drift import DriftOptions, ScoreBaseline
from serving.experiments.definition import Experiment, check_names

DEFAULT_LEDGER = "sqlite:///~/.local/share/limner/experiments.db"

_MIB = 1 << 20
_HOST = re.compile(r"\.?[a-z0-9_-]+(\.[a-z0-9_-]+)*")
_ORIGIN = re.compile(r"https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?|https?://\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?")
_ENDPOINT = re.compile(r"https?://[^\s/?#]+(/[^\s?#]*)?")
_LEDGER = re.compile(r"(sqlite|postgresql)(\+\w+)?://.+")
_DEVICE = r"^(auto|(cpu|cuda|mps)(:[0-9]{1,3})?)$"
DTYPES = ("default", "auto", "fp32", "float32", "bf16", "bfloat16", "fp16", "float16", "int8")
"""Those of ``models.device``, which loads torch."""
_DAY_S = 86_400.0


class Limits(BaseModel):
    """Every bound on what a client may ask for. A refusal is always limner's own, never Ray's."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    max_body_bytes: int = Field(default=32 * _MIB, gt=0, description="the body of one request")
    max_image_bytes: int = Field(default=20 * _MIB, gt=0, description="one image as a file")
    max_image_px: int = Field(default=64_000_000, gt=0, description="width x height of one image")
    max_images: int = Field(default=32, gt=0, description="images of one request")
    max_rows: int = Field(default=64, gt=0, description="captions x beams of one image")
    max_queue_images: int = Field(
        default=256, gt=0, le=1_000_000, description="images that wait in one replica, all models together"
    )
    max_waiting_px: int = Field(default=192_000_000, gt=0, description="decoded pixels that wait in one replica")
    deadline_s: float = Field(default=120.0, gt=0, le=_DAY_S, description="from arrival at the replica to the answer")
    body_timeout_s: float = Field(default=30.0, gt=0, le=_DAY_S, description="for receiving the whole body")
    urls: bool = Field(
        default=False, description="whether images may be given by http(s) URL, which the server fetches"
    )
    url_hosts: tuple[str, ...] | None = Field(
        default=None,
        min_length=1,
        description="the only hosts to fetch from: a name, or .name for a domain and all below it; None: any",
    )
    url_internal_hosts: tuple[str, ...] | None = Field(
        default=None,
        min_length=1,
        description="hosts to fetch from, by their full names, though they are on a private network",
    )
    url_timeout_s: float = Field(default=10.0, gt=0, le=_DAY_S, description="for one image by URL, redirects included")
    max_url_fetches: int = Field(default=32, gt=0, description="images that one replica fetches at a time")

    @field_validator("url_hosts", "url_internal_hosts", mode="before")
    @classmethod
    def _hosts_as_text_or_list(cls, given: Any) -> Any:
        """The command line says them as ``a.org,.b.org``; JSON has no tuples."""
        listed = given.split(",") if isinstance(given, str) else given
        return tuple(listed) if isinstance(listed, list) else listed

    @field_validator("url_hosts", "url_internal_hosts")
    @classmethod
    def _are_hosts(cls, hosts: tuple[str, ...] | None) -> tuple[str, ...] | None:
        lowered = tuple(host.lower() for host in hosts) if hosts is not None else None
        if wrong := [host for host in lowered or () if not _HOST.fullmatch(host)]:
            raise ValueError(f"{wrong[0]!r} is no host name: give such as example.org (or xn--... where not ASCII)")
        return lowered

    @model_validator(mode="after")
    def _hosts_go_with_urls(self) -> Self:
        if (self.url_hosts or self.url_internal_hosts) and not self.urls:
            raise ValueError("hosts to fetch from are given, but urls is false: set urls=true as well")
        if dotted := [host for host in self.url_internal_hosts or () if host.startswith(".")]:
            raise ValueError(f"url_internal_hosts: {dotted[0]!r} is a domain; each host must be named in full")
        return self

    @model_validator(mode="after")
    def _one_request_fits_the_queue(self) -> Self:
        if self.max_queue_images < self.max_images:
            raise ValueError(
                f"max_queue_images ({self.max_queue_images}) is below max_images ({self.max_images}): "
                "the largest allowed request would never fit the queue"
            )
        return self


class MonitorArgs(BaseModel):
    """How the quality of captions is watched while they are served."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sample_share: float = Field(
        default=0.1, ge=0, le=1, description="of the images that no request wants scored: how many are, off its path"
    )
    max_waiting_images: int = Field(default=32, gt=0, description="sampled images that wait in one replica")
    max_waiting_bytes: int = Field(default=32 * _MIB, gt=0, description="of them, encoded")
    scorer_device: str = Field(
        default="cpu", pattern=_DEVICE, description="where the sample is scored; Ray is asked for no GPU"
    )
    drift: DriftOptions = Field(default=DriftOptions(), description="when a fall of CLIPScores raises the alarm")
    baselines: dict[str, ScoreBaseline] = Field(
        default={}, description="healthy CLIPScores by model id; other models start with their first live ones"
    )


class KeyArgs(BaseModel):
    """Where API keys are read from when the application starts; never the keys themselves."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    file: Path | None = Field(default=None, description="a line per key: its name, a colon, the key or its digest")
    env: str | None = Field(default=None, min_length=1, description="an environment variable that holds the same")
    images_per_minute: float | None = Field(
        default=None,
        gt=0,
        description="of each key that has no rate of its own, in each ingress replica; None: no limit",
    )

    @model_validator(mode="after")
    def _names_a_source(self) -> Self:
        if self.file is None and self.env is None:
            raise ValueError("give file or env, where the keys are")
        return self


class ListenArgs(BaseModel):
    """Where the ingress itself takes connections."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = Field(default="127.0.0.1", description="the address")
    port: int = Field(default=8000, ge=1, le=65535, description="the port")


class LogArgs(BaseModel):
    """What is logged of requests: never pictures, captions, queries or keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    folder: Path | None = Field(
        default=None, description="each process writes a file there; None: the standard error of Ray's workers"
    )
    access: bool = Field(default=True, description="a line for every request, apart from probes that went well")


class TracingArgs(BaseModel):
    """Where the spans of requests go, by OpenTelemetry (``pip install limner[otel]``)."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    endpoint: str = Field(
        description="a receiver of OTLP over HTTP, such as http://127.0.0.1:4318; without a path, /v1/traces is added"
    )
    sample_share: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="of the requests that bring no trace of their own: how many are traced; None: as the environment "
        "variables OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG say, or all",
    )

    @field_validator("endpoint")
    @classmethod
    def _is_an_address(cls, endpoint: str) -> str:
        if not (_ENDPOINT.fullmatch(endpoint) and _has_host(endpoint)):
            raise ValueError(f"{endpoint!r} is no address; write http://HOST:PORT or https://HOST:PORT")
        return endpoint

    @property
    def url(self) -> str:
        """What spans are posted to."""
        return endpoint + "/v1/traces" if (endpoint := self.endpoint.rstrip("/")).count("/") == 2 else self.endpoint


def _has_host(address: str) -> bool:
    """Whether an address has a host, and a port that there can be, or none."""
    try:
        parts = urlsplit(address)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


class AppArgs(BaseModel):
    """Arguments of ``serving.app:build_app``."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    models: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(DEFAULT_MODEL,), min_length=1, description="ids or folders, default first"
    )
    models_dir: Path | None = Field(default=None, description="where ids are looked up; None: the bundled models")
    scorer: str | None = Field(default=DEFAULT_SCORER, description="None: no caption is scored")
    device: str = Field(default="auto", pattern=_DEVICE, description="auto: the GPU where there is one; cpu, cuda, ...")
    dtype: str = Field(default="default", description="default: fp32 on a CPU, bf16 on CUDA")
    captioners: int = Field(
        default=1,
        gt=0,
        le=256,
        description="processes that caption, each with its own copy of the models; a Serve config file says "
        "num_replicas or autoscaling_config of Captioner instead",
    )
    threads: int | None = Field(
        default=None, gt=0, le=1024, description="torch threads of a captioner; None: its share of the cores"
    )
    max_batch_images: int = Field(default=32, gt=0, description="images of one forward pass")
    max_batch_rows: int = Field(default=192, gt=0, description="images x beams of one forward pass")
    target_pass_s: float = Field(
        default=1.0,
        gt=0,
        description="about the longest forward pass: slow models get fewer images each, so others wait little",
    )
    max_mix_bytes: int = Field(default=512 * _MIB, gt=0, description="weights of mixes that a replica keeps")
    feature_cache_s: float = Field(
        default=60.0,
        ge=0,
        description="how long the encoded form of a picture is kept, so that another caption of it (the dial moved, a "
        "comparison, a fallback) does not encode it again; 0: not at all",
    )
    max_feature_bytes: int = Field(default=64 * _MIB, gt=0, description="of them, in each replica")
    draft: bool = Field(
        default=DRAFT_BY_DEFAULT,
        description="whether a large JPEG is decoded at 1/2, 1/4 or 1/8 of its size, where that is still twice what "
        "the models see of it: faster, in less memory; some captions come out in other words",
    )
    decode_threads: int = Field(default=2, gt=0, le=256, description="threads that open images")
    limits: Limits = Field(default=Limits(), description="what clients may ask for")
    experiments: tuple[Experiment, ...] = Field(default=(), description="A/B experiments; their names differ")
    monitor: MonitorArgs = Field(
        default=MonitorArgs(), description="what is measured of captions while they are served"
    )
    ledger: str = Field(
        default=DEFAULT_LEDGER, description="database of their outcomes: sqlite:///FILE or postgresql://..."
    )

    api_keys: KeyArgs | None = Field(default=None, description="None: everybody may ask")
    admin_keys: KeyArgs | None = Field(
        default=None, description="keys of those who may add and remove models while it runs; None: nobody"
    )
    cors_origins: tuple[str, ...] = Field(
        default=(), description="other origins whose pages may ask, such as https://example.org, or *; none by default"
    )
    listen: ListenArgs | None = Field(
        default=None,
        description="where the one ingress replica takes connections itself, as `limner serve` has it; None: requests "
        "come through Ray's HTTP proxy, which a cluster needs",
    )
    tracing: TracingArgs | None = Field(
        default=None, description="None: no traces, unless the environment variable OTEL_EXPORTER_OTLP_ENDPOINT is set"
    )
    logs: LogArgs = Field(default=LogArgs(), description="where limner's own log goes, and what is in it")

    @field_validator("cors_origins")
    @classmethod
    def _are_origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        if wrong := [origin for origin in origins if origin != "*" and not _ORIGIN.fullmatch(origin)]:
            raise ValueError(f"{wrong[0]!r} is no origin; write https://HOST or https://HOST:PORT, without a path")
        return origins

    @field_validator("dtype")
    @classmethod
    def _is_a_dtype(cls, dtype: str) -> str:
        if dtype not in DTYPES:
            raise ValueError(f"no dtype {dtype!r}; there are: {', '.join(DTYPES)}")
        return dtype

    @field_validator("ledger")
    @classmethod
    def _is_a_database(cls, ledger: str) -> str:
        if not _LEDGER.fullmatch(ledger):  # it may hold a password, so it is not repeated
            raise ValueError("is no address of a ledger; write sqlite:///FILE or postgresql://USER@HOST/DATABASE")
        return ledger

    @model_validator(mode="after")
    def _experiments_can_be_told_apart(self) -> Self:
        check_names(self.experiments)
        return self

    @model_validator(mode="after")
    def _arms_that_rerank_can_be_scored(self) -> Self:
        for experiment in self.experiments if self.scorer is None else ():
            for arm in experiment.arms:
                if arm.decode is not None and arm.decode.rerank is not None:
                    raise ValueError(
                        f"experiment {experiment.name!r}: arm {arm.label!r} reranks by {arm.decode.rerank}, which "
                        "needs a scorer, and this server has none: leave out decode.rerank, or name a scorer"
                    )
        return self

    @property
    def scores_a_sample(self) -> bool:
        """Whether a process of its own scores a sample of what no request wants scored."""
        return self.scorer is not None and self.monitor.sample_share > 0
