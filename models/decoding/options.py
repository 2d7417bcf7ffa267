"""Options that every decoding strategy has, and the words for refusing a wrong one."""

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator


class SharedOptions(BaseModel):
    """Base of every strategy's nested ``Options``; types are strict, but an int may stand for a float."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    max_tokens: int = Field(default=40, ge=1, le=512)
    """Most generated tokens, the end token included, without prompt and start token."""
    min_tokens: int = Field(default=0, ge=0, le=512)
    """Generated tokens before the end token may come."""
    repetition_penalty: float = Field(default=1.0, ge=0.1, le=10.0)
    """Scores of tokens that stand in the prompt or caption are divided by it (multiplied where negative)."""
    no_repeat_ngram: int = Field(default=0, ge=0, le=512)
    """No n-gram of this size comes twice in prompt + caption; 0 is off."""
    no_stutter: int = Field(default=0, ge=0, le=16)
    """No run of up to this many tokens follows itself at once, as in ``window window``, no n-gram of 3; 0 is off."""

    @model_validator(mode="after")
    def _min_within_max(self) -> Self:
        if self.min_tokens > self.max_tokens:
            raise ValueError(f"min_tokens {self.min_tokens} is more than max_tokens {self.max_tokens}")
        return self


def explain(error: ValidationError, strategy: str, options: type[SharedOptions]) -> str:
    """One sentence about the first thing wrong: the option, its value and what is allowed."""
    first = error.errors(include_url=False, include_context=False)[0]
    if not first["loc"]:
        return f"options of decoding strategy {strategy!r}: {first['msg'].removeprefix('Value error, ')}"
    name = str(first["loc"][0])
    if name not in options.model_fields:
        return (
            f"decoding strategy {strategy!r} has no option {name!r}; it has: {', '.join(sorted(options.model_fields))}"
        )
    hint = f" ({first['msg'].removeprefix('Value error, ')})" if first["type"] == "value_error" else ""
    allowed = _allowed(options.model_json_schema()["properties"][name])
    return f"option {name!r} of decoding strategy {strategy!r} is {short(first['input'])}; allowed: {allowed}{hint}"


def _allowed(schema: dict[str, Any]) -> str:
    """What a JSON schema accepts, in words: ``an integer from 1 to 64``."""
    if "anyOf" in schema:
        return " or ".join(_allowed(part) for part in schema["anyOf"])
    noun = {"integer": "an integer", "number": "a number", "boolean": "true or false", "null": "null"}[schema["type"]]
    low, high = schema.get("minimum"), schema.get("maximum")
    above = schema.get("exclusiveMinimum")
    start = f" from {low}" if low is not None else f" above {above}" if above is not None else ""
    return noun + start + (f" to {high}" if high is not None else "")


def short(value: object) -> str:
    """The value as a message may show it."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
