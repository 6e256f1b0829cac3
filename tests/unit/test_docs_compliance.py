"""docs/compliance.md is what the constructs answer now; a new answer is a change of it that somebody reviews."""

from __future__ import annotations

from scripts import compliance


def test_the_page_is_not_stale() -> None:
    assert compliance.PAGE.read_text(encoding="utf-8") == compliance.page(), "run `make docs`"


def test_every_answer_has_a_reason_that_says_something() -> None:
    found = compliance.answers()
    packs = {answer.rule.split("-")[0] for answer in found}
    assert {"AwsSolutions", "NIST.800.53.R5", "HIPAA.Security"} <= packs
    assert [answer for answer in found if len(answer.reason) < 40] == []
