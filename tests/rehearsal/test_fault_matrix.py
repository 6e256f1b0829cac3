"""One fault after another on a live cluster: each gets its own verdict, and none is put down to what it is not."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from uuid import uuid4

import pytest

from slurm_cluster.rehearsal.session import Rehearsal
from slurm_cluster.runtime import probe_plan
from slurm_cluster.runtime.verdict import Code
from tests.rehearsal import confusion_table
from tests.rehearsal.breakage import Bench
from tests.rehearsal.cluster_user import ClusterUser
from tests.rehearsal.confusion_table import Said
from tests.rehearsal.fault_matrix import FAULTS, ROUNDS
from tests.rehearsal.faults import HEAD, Asked, Fault, Round, is_of_network
from tests.rehearsal.investigator import Investigator

pytestmark = pytest.mark.rehearsal

LIMIT_SECONDS = 90
_NO_FAULT = "none"


@dataclass(frozen=True)
class Finding:
    """One verdict."""

    code: Code
    node: str
    sentence: str


@pytest.fixture
def bench(rehearsal: Rehearsal, cluster: ClusterUser, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """The healthy cluster; here all agents start their commands at the same moment."""
    monkeypatch.setattr(probe_plan, "WINDOW_SECONDS", 6)
    return Bench(rehearsal, cluster)


@pytest.fixture(scope="module")
def table(request: pytest.FixtureRequest) -> Iterator[dict[str, Said]]:
    """What was said, by fault; where wanted it is written to the page, on which what is said of others stays."""
    made: dict[str, Said] = {}
    yield made
    if request.config.getoption("--write-fault-matrix"):
        known = {**confusion_table.read(confusion_table.PAGE.read_text()), **made}
        assert not (missing := [fault.name for fault in FAULTS if fault.name not in known]), missing
        said = {fault.name: known[fault.name] for fault in FAULTS}
        seen = {code for item in said.values() for code in item.codes}
        columns = sorted(seen, key=lambda code: (not is_of_network(code), list(Code).index(code)))
        confusion_table.PAGE.write_text(confusion_table.page(said, columns))


def ask_doctor(bench: Bench) -> tuple[int, list[Finding]]:
    """Run the doctor on the head."""
    done = bench.rehearsal.nodes[HEAD].exec(["slurm-doctor", "--json"], timeout=LIMIT_SECONDS + 10)
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    print(json.dumps(report, indent=1))
    return done.returncode, [
        Finding(Code(fault["code"]), fault["node"], fault["sentence"]) for fault in report["faults"]
    ]


def ask_gate(bench: Bench, one: Round) -> list[Finding]:
    """Ask as the smoke test's function does."""
    investigator = Investigator(bench.rehearsal)
    if one.asked is Asked.WATCH:
        found = investigator.findings_of_boots()
    else:
        tested = one.asked is Asked.TEST
        found = investigator.findings(
            investigator.gate(str(uuid4()), phase="create", wait=20, limit=8) if tested else None
        )
    return [Finding(item.code, item.node, item.sentence) for item in found]


def judge(one: Round, found: Sequence[Finding]) -> dict[str, Said]:
    """See that each fault has its verdict first and that nothing else is said; return what was said of each."""
    said = {}
    for fault in one.faults:
        own = [item for item in found if (item.code, item.node) == (fault.code, fault.node)]
        own = [item for item in own if fault.words in item.sentence]
        assert own, f"{fault.name}: not {fault.code} of {fault.node} ({fault.words!r}) in {found}"
        about = [item for item in found if item.node == fault.node and not _of_another(item, fault, one)]
        assert about[0] == own[0], f"{fault.name}: first of {about}"
        codes = [item.code for item in (*about, *(item for item in found if item.code in fault.besides))]
        said[fault.name] = Said(asked=one.asked, node=fault.node, codes=tuple(dict.fromkeys(codes)))
    allowed = {code for fault in one.faults for code in (fault.code, *fault.besides)}
    assert {item.code for item in found} <= allowed, found
    assert found[0].code in {fault.code for fault in one.faults}, found
    blamed = {is_of_network(item.code) for item in found}
    assert blamed == {fault.of_network for fault in one.faults}, "the network for what is not, or the reverse"
    return said


def _of_another(item: Finding, fault: Fault, one: Round) -> bool:
    others = [other for other in one.faults if other is not fault]
    return any((item.code, item.node) == (other.code, other.node) and other.words in item.sentence for other in others)


def assert_jobs_run(cluster: ClusterUser) -> None:
    names = [worker.name for worker in cluster.workers]
    cluster.settle()
    launch = f"timeout 30 srun --nodes={len(names)} --nodelist={','.join(names)} printenv SLURMD_NODENAME"
    done = cluster.user(cluster.head, launch)
    assert (sorted(done.stdout.split()), done.returncode) == (names, 0), done


def test_nothing_is_wrong_with_a_healthy_cluster(bench: Bench) -> None:
    assert ask_doctor(bench) == (0, [])


@pytest.mark.parametrize("one", ROUNDS, ids=lambda one: one.name)
def test_each_fault_gets_its_own_verdict(one: Round, bench: Bench, table: dict[str, Said]) -> None:
    with ExitStack() as stack:
        for fault in one.faults:
            stack.enter_context(fault.broken(bench))
        began = time.monotonic()
        if one.asked is Asked.DOCTOR:
            status, found = ask_doctor(bench)
            assert status == 1
        else:
            found = ask_gate(bench, one)
        assert time.monotonic() - began < LIMIT_SECONDS
    assert_jobs_run(bench.cluster)
    table.update(judge(one, found))


def test_nothing_is_wrong_after_all_were_mended(bench: Bench) -> None:
    assert ask_doctor(bench) == (0, [])
