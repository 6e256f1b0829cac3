"""README shows a rehearsal as it prints itself: each shown line, parsed and printed again by the code, is the same."""

from __future__ import annotations

import inspect
import re

import app
from scripts.default_template import default_context
from scripts.readme import README
from slurm_cluster.model.names import static_node_names
from slurm_cluster.rehearsal import owner
from slurm_cluster.rehearsal.progress import Progress, Span
from slurm_cluster.rehearsal.report import SmokeTest, smoke_test_lines, timeline_lines

LEFT_OUT = "..."
PROGRESS = re.compile(r"\+ *(?P<seconds>[\d.]+)s (?P<who>.{16}) (?P<text>.+)")
PRINTED = re.compile(r"  (?P<node>\S+) (?P<host>ip-[\d-]+)")
CHECK = re.compile(r"check (?P<name>\S+): passed in (?P<seconds>[\d.]+) s")
SPAN = re.compile(r" +(?P<began>[\d.]+)s +(?P<took>[\d.]+)s  (?P<what>.+)")


def shown() -> list[str]:
    """The lines that the README shows below the two commands."""
    text = README.read_text().split("```console\n")[1].split("```\n")[0]
    assert text.startswith("$ make deps\n")
    return text.split("$ make rehearse\n")[1].splitlines()


def test_progress_lines() -> None:
    lines = [line for line in shown() if line.startswith("+")]
    assert len(lines) > 10
    for line in lines:
        match = PROGRESS.fullmatch(line)
        assert match, line
        printed: list[str] = []
        times = iter([0.0, float(match["seconds"])])
        Progress(printed.append, clock=times.__next__).say(match["text"], who=match["who"].rstrip())
        assert printed == [line]


def test_srun_answers_from_every_default_node_and_the_checks_passed() -> None:
    lines = shown()
    begin = lines.index("srun printed (node name, host name):")
    outcome = lines[
        begin : next(number for number, line in enumerate(lines) if line.startswith("+") and number > begin)
    ]
    hosts = {match["node"]: match["host"] for line in outcome if (match := PRINTED.fullmatch(line))}
    partitions = app.read_context(default_context())["partitions"]
    assert set(hosts) == {name for item in partitions for name in static_node_names(item.name, item.static_nodes)}
    assert len(set(hosts.values())) == len(hosts)

    checks = [match for line in outcome if (match := CHECK.fullmatch(line))]
    assert len(checks) >= 3
    result = SmokeTest(
        passed=True,
        nodes=hosts,
        checks=tuple((match["name"], True, float(match["seconds"]), "") for match in checks),
        output="".join(f"{line.removeprefix('  ')}\n" for line in outcome if PRINTED.fullmatch(line)),
    )
    assert list(smoke_test_lines(result)) == outcome


def test_timeline() -> None:
    lines = shown()
    begin = next(number for number, line in enumerate(lines) if line.startswith("timeline:"))
    timeline = [line for line in lines[begin : lines.index(LEFT_OUT, begin)] if line]
    matches = [match for line in timeline[1:] if (match := SPAN.fullmatch(line))]
    spans = [Span(m["what"], float(m["began"]), float(m["began"]) + float(m["took"])) for m in matches]
    assert list(timeline_lines(spans)) == timeline
    assert {"cdk deploy", "head: boot", "head: bootstrap", "cdk destroy"} <= {span.what for span in spans}


def test_it_ends_as_a_rehearsal_that_passed() -> None:
    assert f'"{shown()[-1]}"' in inspect.getsource(owner)
    assert shown()[-1].startswith("passed")
