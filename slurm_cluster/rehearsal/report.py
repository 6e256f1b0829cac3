"""The report at the end of a rehearsal: what srun printed, what took how long, and what was not proven."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from slurm_cluster.rehearsal import cgroups
from slurm_cluster.rehearsal.image import ImageKind, replaced
from slurm_cluster.rehearsal.progress import Span

FORMAT = 1
"""Of the JSON report; a reader of one number can read every report of that number."""

_AGENT = "the installation and the registration of the SSM agent"
_STOCK_AGENT = "the SSM agent itself and its registration; its package is a stand-in, signed by another key than AWS's"

NOT_REHEARSED = (
    "AWS's own APIs: ministack answers in their place, without their quotas, capacity, delays and consistency",
    "the boot of an EC2 instance and its devices: machines are systemd-nspawn containers, volumes are loop devices",
    _AGENT,
    "NFS, EFS and FSx: this release mounts none",
    "EFA and GPUs",
)
"""What no rehearsal on one machine proves, whatever the app is."""


def not_rehearsed(kind: ImageKind) -> tuple[str, ...]:
    """Return what a rehearsal with this kind of image does not prove."""
    if kind is ImageKind.BAKED:
        return NOT_REHEARSED
    return tuple(_STOCK_AGENT if item == _AGENT else item for item in NOT_REHEARSED)


@dataclass(frozen=True, kw_only=True)
class SmokeTest:
    """Outcome of ``slurm-cluster smoke-test``.

    Args:
        passed: whether every check passed.
        nodes: host name that each node name answered with.
        checks: name, passed (None: does not apply to this cluster), seconds, detail, in the order of running.
        output: what srun printed.
    """

    passed: bool
    nodes: Mapping[str, str]
    checks: tuple[tuple[str, bool | None, float, str], ...]
    output: str

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> SmokeTest:
        """Read the program's JSON object."""
        checks = tuple((item["name"], item["passed"], item["seconds"], item["detail"]) for item in value["checks"])
        return cls(passed=value["passed"], nodes=value["nodes"], checks=checks, output=value["output"])

    def as_dict(self) -> dict[str, Any]:
        """Return what ``from_dict`` reads."""
        keys = ("name", "passed", "seconds", "detail")
        checks = [dict(zip(keys, check, strict=True)) for check in self.checks]
        return {"passed": self.passed, "nodes": dict(self.nodes), "checks": checks, "output": self.output}


def smoke_test_lines(result: SmokeTest) -> Iterator[str]:
    """Yield what srun printed and each check's outcome."""
    yield "srun printed (node name, host name):"
    yield from (f"  {line}" for line in result.output.splitlines())
    for name, passed, seconds, detail in result.checks:
        if passed is None:
            yield f"check {name}: does not apply: {detail}"
        elif passed:
            yield f"check {name}: passed in {seconds:.1f} s"
        else:
            yield f"check {name}: FAILED after {seconds:.1f} s: {detail}"


def timeline_lines(spans: Iterable[Span]) -> Iterator[str]:
    """Yield the timeline, times in seconds since the rehearsal began."""
    yield "timeline: began    took"
    for span in spans:
        yield f"       {span.began:7.1f}s {span.ended - span.began:6.1f}s  {span.what}"


def limits_lines(kind: ImageKind, differences: Iterable[str]) -> Iterator[str]:
    """Yield what stood in for the real thing and what was not proven.

    Args:
        kind: of the nodes' image.
        differences: declared properties that the emulated API reports otherwise.
    """
    yield "replaced in the nodes' image:"
    yield from (f"  {item}" for item in replaced(kind, cgroups.version()))
    yield "not rehearsed:"
    yield from (f"  {item}" for item in not_rehearsed(kind))
    listed = list(differences)
    if listed:
        yield "declared in the template, but reported otherwise by the emulated API:"
        yield from (f"  {item}" for item in listed)


@dataclass(frozen=True, kw_only=True)
class Report:
    """What became of one rehearsal.

    Args:
        app: directory of the app.
        context: CDK context that was given.
        image: kind of the nodes' image.
        session: session id.
        began: when.
        seconds: how long it took up to this report.
        failure: why it failed, None if it passed.
        outputs: of the stacks, by stack.
        nodes: instance id and private address of each machine that there was, by name.
        smoke_tests: outcome by the name of the head node.
        spans: what took how long.
        refused: who was refused what by the network, a line each.
        differences: declared properties that the emulated API reports otherwise, a line each.
    """

    app: str
    context: Mapping[str, Any]
    image: ImageKind
    session: str
    began: datetime
    seconds: float
    failure: str | None
    outputs: Mapping[str, Mapping[str, str]]
    nodes: Mapping[str, Mapping[str, str]]
    smoke_tests: Mapping[str, SmokeTest]
    spans: tuple[Span, ...]
    refused: tuple[str, ...]
    differences: tuple[str, ...]

    @property
    def title(self) -> str:
        """What the timeline's picture is called."""
        return f"rehearsal of {self.app}: {'failed' if self.failure else 'passed'} after {self.seconds:.0f} s"

    def lines(self) -> Iterator[str]:
        """Yield the report for people."""
        yield from timeline_lines(self.spans)
        yield from self.refused
        yield from limits_lines(self.image, self.differences)

    def as_dict(self) -> dict[str, Any]:
        """Return the report for programs, as JSON can hold it; times are seconds since the rehearsal began."""
        return {
            "format": FORMAT,
            "passed": self.failure is None,
            "failure": self.failure,
            "app": self.app,
            "context": dict(self.context),
            "image": self.image.value,
            "session": self.session,
            "began": self.began.isoformat(timespec="seconds"),
            "seconds": round(self.seconds, 1),
            "outputs": {stack: dict(values) for stack, values in self.outputs.items()},
            "nodes": {name: dict(values) for name, values in self.nodes.items()},
            "smoke_tests": {head: test.as_dict() for head, test in self.smoke_tests.items()},
            "timeline": [_span(span) for span in self.spans],
            "refused": list(self.refused),
            "differences": list(self.differences),
            "replaced": list(replaced(self.image, cgroups.version())),
            "not_rehearsed": list(not_rehearsed(self.image)),
        }


def _span(span: Span) -> dict[str, Any]:
    parts = [{"what": name, "began": round(began, 1), "ended": round(ended, 1)} for name, began, ended in span.parts]
    return {
        "what": span.what,
        "began": round(span.began, 1),
        "ended": round(span.ended, 1),
        "failed": span.failed,
        "parts": parts,
    }
