"""The Python tokeniser against known tokens and against the Java one."""

from pathlib import Path

import pytest

from models.errors import MissingDependencyError, RequestError
from tests.support import SHARED, needs_java, needs_shared
from training.data import read_dataset
from training.metrics.tokenizer import JavaPtbTokenizer, PythonPtbTokenizer, choose_tokenizer

TOKENS = {
    'A grey-haired man isn\'t wearing a "red" shirt...': "a grey-haired man is n't wearing a red shirt",
    "the man's dogs' bowls, they're full!": "the man 's dogs bowls they 're full",
    "I can't, cannot, won't": "i ca n't can not wo n't",
    "O'Brien at five o'clock in the U.S.": "o'brien at five o'clock in the u.s.",
    "1,000 people, 3.5 m at 10:30 and 3/4": "1,000 people 3.5 m at 10:30 and 3/4",
    "a (small) dog -- or cat; black/white": "a -lrb- small -rrb- dog or cat black/white",
    "it’s a “dog” – he said": "it 's a dog he said",
    "Mr. Smith gonna run": "mr. smith gon na run",
    "50% of $5 & #1": "50 % of $ 5 & # 1",
    "rock 'n' roll in the '80s": "rock 'n' roll in the '80s",
    "see avrovulcan.com now": "see avrovulcan.com now",
    "ein Ma\u0308dchen 一只猫": "ein m\u00e4dchen 一只猫",
    "a cat\r\nsits\u2028here\x0cnow": "a cat sits here now",
    "plan B. what?! really!!": "plan b. what ?! really !!",
    "...": "",
    " . , ; ": "",
    "": "",
    "\f": "",
}


@pytest.fixture(scope="module")
def java() -> JavaPtbTokenizer:
    needs_java.check()
    return JavaPtbTokenizer()


@pytest.mark.parametrize("text", TOKENS)
def test_python_tokens(text: str) -> None:
    assert PythonPtbTokenizer().tokenize([text]) == [TOKENS[text]]


@pytest.mark.java
def test_java_gives_the_same_tokens(java: JavaPtbTokenizer) -> None:
    assert java.tokenize(list(TOKENS)) == list(TOKENS.values())


@pytest.mark.java
def test_java_stays_in_step_whatever_a_caption_holds(java: JavaPtbTokenizer, capfd: pytest.CaptureFixture[str]) -> None:
    hostile = ["", "\u2028", "🐕", "\x85", "\x00", "a\x1cb", "...", "\u200b", "\ud800", "x" * 5000, " ", ""]
    tokenized = java.tokenize([text for bad in hostile for text in (bad, "a cat")])
    assert tokenized[1::2] == ["a cat"] * len(hostile)
    assert len(tokenized) == 2 * len(hostile)
    assert java.tokenize([]) == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.java
@needs_shared
def test_python_equals_java_on_real_captions(java: JavaPtbTokenizer) -> None:
    options = {"path": SHARED / "flickr8k" / "dataset_flickr8k.json", "images_root": SHARED, "on_missing": "keep"}
    examples = read_dataset("karpathy", options).split("val")
    captions = [caption for example in examples for caption in example.captions]
    assert PythonPtbTokenizer().tokenize(captions) == java.tokenize(captions)


def test_no_java_is_found_out_at_once() -> None:
    with pytest.raises(MissingDependencyError, match="install Java, or use the python tokeniser"):
        JavaPtbTokenizer("no-such-java")


def test_a_java_that_fails_is_found_out_at_once(tmp_path: Path) -> None:
    stub = tmp_path / "java"
    stub.write_text("#!/bin/sh\necho 'no Java runtime' >&2\nexit 1\n", encoding="utf-8")
    stub.chmod(0o755)
    with pytest.raises(MissingDependencyError):
        JavaPtbTokenizer(str(stub))


def test_auto_falls_back_to_python_and_java_does_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert choose_tokenizer("auto").name == "ptb-python"
    with pytest.raises(MissingDependencyError):
        choose_tokenizer("java")


@pytest.mark.java
def test_auto_prefers_java(java: JavaPtbTokenizer) -> None:
    assert choose_tokenizer("auto").name == java.name == "ptb-java"
    assert choose_tokenizer("python").name == "ptb-python"


def test_other_tokenizers_are_refused() -> None:
    with pytest.raises(RequestError, match="auto, java or python"):
        choose_tokenizer("13a")
