"""The picture of a proof: valid SVG, in which what is closed stands out."""

from __future__ import annotations

import itertools
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from slurm_cluster.reachability import Proof, Roles, picture
from tests.unit import reachability_proofs
from tests.unit.reachability_proofs import FLOWS, SSH

SVG = "{http://www.w3.org/2000/svg}"


def drawn(proof: Proof, title: str = "cluster.yaml") -> ElementTree.Element:
    return ElementTree.fromstring(picture.render(proof, title=title))  # noqa: S314 (our own text)


def lanes(root: ElementTree.Element, state: str) -> dict[str, ElementTree.Element]:
    """The lanes of one state by flow."""
    return {
        lane.findtext(f"{SVG}text/{SVG}tspan", ""): lane for lane in root.iter(f"{SVG}g") if lane.get("class") == state
    }


def test_every_flow_is_drawn_in_its_state() -> None:
    root = drawn(reachability_proofs.proof(closed=["srun-io"], unknown=["mpi", "node-rpc"]))
    assert set(lanes(root, "closed")) == {"srun-io"}
    assert set(lanes(root, "unknown")) == {"mpi", "node-rpc"}
    assert set(lanes(root, "open")) == {flow.id for flow in FLOWS} - {"srun-io", "mpi", "node-rpc"}


def test_closed_flow_ends_in_a_cross_before_its_listener() -> None:
    root = drawn(reachability_proofs.proof(closed=["srun-io"]))
    closed, opened = lanes(root, "closed")["srun-io"], lanes(root, "open")["controller-rpc"]
    assert [path.get("class") for path in closed.iter(f"{SVG}path")] == ["cross"]
    assert [path.get("class") for path in opened.iter(f"{SVG}path")] == ["head"]
    text = " ".join(closed.itertext())
    assert "TCP 1024-65535" in text
    assert "CLOSED: connect io: Connection timed out" in text


def ends(lane: ElementTree.Element) -> tuple[float, float]:
    line = next(lane.iter(f"{SVG}line"))
    return float(line.get("x1", "")), float(line.get("x2", ""))


def test_arrows_point_from_opener_to_listener() -> None:
    open_lanes = lanes(drawn(reachability_proofs.proof()), "open")
    for flow in FLOWS:
        start, end = ends(open_lanes[flow.id])
        # the head is on the left, and so is the other worker
        assert (start < end) is (flow.opener == "head")


def test_lanes_do_not_overlap() -> None:
    root = drawn(reachability_proofs.proof(closed=[flow.id for flow in FLOWS]))
    heights = sorted(float(next(lane.iter(f"{SVG}line")).get("y1", "")) for lane in lanes(root, "closed").values())
    assert all(later - earlier >= 46 for earlier, later in itertools.pairwise(heights))


def test_rules_to_add_and_rules_too_wide_are_shown() -> None:
    text = " ".join(drawn(reachability_proofs.proof(closed=["srun-io"], wider=[SSH])).itertext())
    assert "HeadGroup: let TCP 1024-65535 in from ComputeGroup" in text
    assert "0.0.0.0/0" in text
    assert "no flow needs it" in text


def test_many_wide_rules_are_counted() -> None:
    text = " ".join(drawn(reachability_proofs.proof(wider=[SSH] * 40)).itertext())
    assert "and 28 more" in text


@pytest.mark.parametrize("number", [0, 1, 300])
def test_everything_is_inside_the_picture(number: int) -> None:
    proof = reachability_proofs.proof(closed=[flow.id for flow in FLOWS], wider=[SSH] * number)
    groups = tuple(f"Group{index}" for index in range(number))
    root = drawn(replace(proof, roles=Roles(head=groups, workers=groups, worker_members=groups)))
    width, height = float(root.get("width", "")), float(root.get("height", ""))
    for element in root.iter():
        assert 0 <= float(element.get("x", 0)) + float(element.get("width", 0) if element is not root else 0) <= width
        assert 0 <= float(element.get("y", 0)) <= height


def test_names_are_text_and_not_markup() -> None:
    name = "a<b>&\"quoted\" 'name'.yaml"
    root = drawn(reachability_proofs.proof(), title=name)
    assert root.findtext(f"{SVG}title") == f"Slurm's connections in {name}"


def test_equal_proofs_give_equal_pictures() -> None:
    proof = reachability_proofs.proof(closed=["mpi"])
    assert picture.render(proof, title="x") == picture.render(reachability_proofs.proof(closed=["mpi"]), title="x")
