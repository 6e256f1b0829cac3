"""The report at the end of a rehearsal: what srun printed, what took how long, and what was not proven."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from slurm_cluster.rehearsal.progress import Span

NOT_REHEARSED = (
    "AWS's own APIs: ministack answers in their place, without their quotas, capacity, delays and consistency",
    "the boot of an EC2 instance and its devices: machines are systemd-nspawn containers, volumes are loop devices",
    "the installation and the registration of the SSM agent",
    "NFS, EFS and FSx: this release mounts none",
    "EFA and GPUs",
)
"""What no rehearsal on one machine proves, whatever the app is."""


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


def limits_lines(replaced: Iterable[str], differences: Iterable[str]) -> Iterator[str]:
    """Yield what stood in for the real thing and what was not proven.

    Args:
        replaced: what the node image sets or replaces.
        differences: declared properties that the emulated API reports otherwise.
    """
    yield "replaced in the nodes' image:"
    yield from (f"  {item}" for item in replaced)
    yield "not rehearsed:"
    yield from (f"  {item}" for item in NOT_REHEARSED)
    listed = list(differences)
    if listed:
        yield "declared in the template, but reported otherwise by the emulated API:"
        yield from (f"  {item}" for item in listed)
