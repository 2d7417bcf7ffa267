"""ROUGE-L, METEOR and SPICE: the metrics of the COCO caption evaluation besides BLEU and CIDEr."""

import json
import math
from pathlib import Path

import pytest
from pycocoevalcap.rouge.rouge import Rouge

from models.errors import DataError, MissingDependencyError
from tests.support import needs_java
from tests.training.metrics.helpers import compute, everything, paired
from training.metrics import java, spice
from training.metrics.meteor import Meteor
from training.metrics.rouge_l import RougeL
from training.metrics.spice import Spice, read_scores

# Captions with their references, and what pycocoevalcap's own wrapper of METEOR gave for each.
METEOR_PAIRS = [
    ("a man is riding the brown horses", ["a man rides a horse", "a person on a horse outside"], 0.1647136765594226),
    ("", ["a cat"], 0.0),
    ("a dog runs", ["a dog runs"], 1.0),
    ("dog a quickly ran", ["a dog runs fast"], 0.256),
    (
        "two children are playing in a field",
        ["two kids play soccer on the field", "children playing football"],
        0.27573248470190476,
    ),
    ("the man 's red hat", ["a man 's hat is n't red", "the hat"], 0.3076923076923077),
]
METEOR_TOGETHER = 0.2673801349906524


def test_rouge_by_hand() -> None:
    # Longest common subsequence "a b c" of 4 and 5 words: precision .75, recall .6.
    precision, recall, beta = 3 / 4, 3 / 5, 1.2
    expected = (1 + beta**2) * precision * recall / (recall + beta**2 * precision)
    assert compute("rouge_l", paired({"1": "a b x c"}, {"1": ["a y b z c"]}))["rouge_l"] == pytest.approx(expected)


def test_rouge_takes_precision_and_recall_from_any_reference() -> None:
    # "a b" is within the first reference, and all of the second is within "a b".
    assert compute("rouge_l", paired({"1": "a b"}, {"1": ["a b c d", "a"]}))["rouge_l"] == pytest.approx(1.0)


def test_rouge_is_pycocoevalcaps_but_for_two_empty_texts() -> None:
    tokenized = everything().tokenized
    assert tokenized is not None
    pairs = zip(tokenized.captions, tokenized.references, strict=True)
    theirs = [Rouge().calc_score([caption], list(references)) for caption, references in pairs]
    assert RougeL().per_image(everything())["rouge_l"] == theirs
    assert compute("rouge_l", paired({"1": "..."}, {"1": ["!"]})) == {"rouge_l": 0.0}


@needs_java
def test_meteor_is_pycocoevalcaps_for_each_caption_and_for_all_together() -> None:
    captions = {str(number): caption for number, (caption, _, _) in enumerate(METEOR_PAIRS)}
    inputs = paired(captions, {str(number): references for number, (_, references, _) in enumerate(METEOR_PAIRS)})
    metric = Meteor()
    counts = metric.counts(inputs)  # one start of Java for all of this
    assert [metric.combine([count])["meteor"] for count in counts] == pytest.approx(
        [score for *_, score in METEOR_PAIRS]
    )
    assert metric.combine(counts)["meteor"] == pytest.approx(METEOR_TOGETHER, abs=1e-15)
    assert metric.combine([counts[1]]) == {"meteor": 0.0}
    assert metric.definitions().keys() == {"meteor"}


def test_meteor_without_java_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingDependencyError, match="METEOR needs Java"):
        Meteor()


def test_a_jar_that_is_absent_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingDependencyError, match=r"SPICE needs .*parser\.jar"):
        java.check_java("SPICE", [tmp_path / "parser.jar"])


@needs_java
def test_a_program_that_fails_says_why() -> None:
    with pytest.raises(MissingDependencyError, match="METEOR failed in Java: .*no-such"):
        java.run_java("METEOR", ["-jar", "no-such.jar"])


def test_spice_without_its_parser_downloads_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(spice, "package_folder", lambda module: tmp_path)
    with pytest.raises(MissingDependencyError, match=r"stanford-corenlp-3\.6\.0-models\.jar"):
        Spice()
    assert list(tmp_path.iterdir()) == []


def test_spice_scores_are_put_in_order() -> None:
    answer = [
        {"image_id": 1, "scores": {"All": {"pr": 0.5, "re": 0.5, "f": 0.5}}},
        {"image_id": 0, "scores": {"All": {"pr": 1.0, "re": 0.2, "f": 1 / 3}}},
        {"image_id": 2, "scores": {"All": {"f": math.nan}}},
        {"image_id": 3, "scores": {"All": {"f": None}}},
    ]
    assert read_scores(json.dumps(answer), 4) == [1 / 3, 0.5, 0.0, 0.0]
    with pytest.raises(DataError, match="4 images for 5"):
        read_scores(json.dumps(answer), 5)


def test_spice_asks_the_jar_for_every_image(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A stand-in for Java, since the parser's models are not part of pycocoevalcap: it answers the caption's length."""
    for name in ("spice-1.0.jar", "lib/stanford-corenlp-3.6.0.jar", "lib/stanford-corenlp-3.6.0-models.jar"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    stub = tmp_path / "bin" / "java"
    stub.parent.mkdir()
    stub.write_text(_STUB, encoding="utf-8")
    stub.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stub.parent}:/usr/bin:/bin")
    monkeypatch.setattr(spice, "package_folder", lambda module: tmp_path)
    inputs = paired({"1": "a dog", "2": "a brown dog"}, {"1": ["a dog", "dogs"], "2": ["a cat"]})
    assert Spice().per_image(inputs) == {"spice": [0.2, 0.3]}
    assert Spice().definitions().keys() == {"spice"}


_STUB = """#!/usr/bin/env python3
import json, sys
if "-version" in sys.argv:
    sys.exit()
questions, answers = sys.argv[sys.argv.index("-jar") + 2], sys.argv[sys.argv.index("-out") + 1]
items = json.load(open(questions))
assert all(item["refs"] for item in items)
scores = [{"image_id": i["image_id"], "scores": {"All": {"f": len(i["test"].split()) / 10}}} for i in items]
json.dump(scores, open(answers, "w"))
"""
