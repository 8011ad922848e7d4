"""Replicas of a router in virtual time."""

from dataclasses import replace

import pytest

from bench.__main__ import main
from bench.replicas.model import Setting, simulate

ONE = Setting(workers=4, concurrency=4)


def test_one_replica_counts_truly_so_nothing_leaves_home_or_stays_there_wrongly() -> None:
    outcome = simulate(ONE, seed=1)
    assert outcome.false_spills == outcome.missed_spills == 0
    assert outcome == simulate(replace(ONE, front="by-label"), seed=1)


def test_counts_of_a_share_move_labels_that_slack_keeps_at_home() -> None:
    local = simulate(replace(ONE, replicas=4), seed=1)
    slackened = simulate(replace(ONE, replicas=4, slack=1), seed=1)
    assert local.false_spills > 0.05 > slackened.false_spills
    assert slackened.affinity > simulate(ONE, seed=1).affinity > local.affinity
    assert slackened.peak > local.peak


def test_slack_without_end_is_a_ring_without_bound() -> None:
    outcome = simulate(replace(ONE, replicas=2, slack=1000), seed=1)
    assert outcome.affinity == 1
    assert outcome.missed_spills > 0


def test_a_table_of_labels_is_of_use_only_behind_a_front_that_goes_by_the_label() -> None:
    sticky = replace(ONE, router="sticky-bounded", replicas=4, slack=2)
    assert simulate(replace(sticky, front="by-label"), seed=1).affinity > 0.9
    assert simulate(sticky, seed=1).affinity < 0.6


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_the_command_prints_every_setting(
    options: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replicas", "--quick", "--seeds", "1", *options]) == 0
    printed = capsys.readouterr().out
    assert printed.count("by-label") >= 12
