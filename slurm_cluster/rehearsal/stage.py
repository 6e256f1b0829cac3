"""Everything around the app: the emulated AWS, the VPC with its services, and the fleet; built, used, torn down."""

from __future__ import annotations

import os
import re
import shutil
import traceback
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from slurm_cluster.rehearsal import sweep
from slurm_cluster.rehearsal.apt_cache import AptCache
from slurm_cluster.rehearsal.cloud.cdk_cli import CdkCli
from slurm_cluster.rehearsal.cloud.cdk_tool import CdkError
from slurm_cluster.rehearsal.cloud.server import REGION, Cloud
from slurm_cluster.rehearsal.errors import RehearsalError
from slurm_cluster.rehearsal.fleet import Fleet
from slurm_cluster.rehearsal.image import ImageKind, architecture, ensure_baked_image, ensure_stock_image
from slurm_cluster.rehearsal.image.agent_kit import AgentKit, ensure_agent_kit
from slurm_cluster.rehearsal.network import agent_bucket
from slurm_cluster.rehearsal.network.addresses import API, API_PORT, PACKAGES, PACKAGES_PORT, agent_bucket_host
from slurm_cluster.rehearsal.network.dns import DnsService
from slurm_cluster.rehearsal.network.instance_metadata import InstanceProfile, RoleCredentials
from slurm_cluster.rehearsal.network.metadata import MetadataService
from slurm_cluster.rehearsal.network.relay import Relay
from slurm_cluster.rehearsal.network.vpc import VpcNetwork
from slurm_cluster.rehearsal.ownership import SESSION_VARIABLE, Ownership
from slurm_cluster.rehearsal.paths import cache_dir
from slurm_cluster.rehearsal.progress import Progress
from slurm_cluster.rehearsal.zones import PrivateZones

_T = TypeVar("_T")

_ROUTINE = re.compile(
    r"_(IN_PROGRESS|COMPLETE) +\| (?!AWS::EC2::Instance|Custom::|AWS::CloudFormation::Stack)"
    r"|^CDKToolkit|^Trusted accounts|^Using default execution policy|(start|success): |: creating CloudFormation"
)


def is_routine(line: str) -> bool:
    """Return whether a line of the CDK CLI says only that all is well with what is no machine."""
    return _ROUTINE.search(line) is not None


class Stage:
    """What one session has on this machine.

    Args:
        owned: the session's lock, released by ``close``.
        image: kind of the machines' image.
        progress: told what happens.
    """

    cloud: Cloud
    network: VpcNetwork
    fleet: Fleet

    def __init__(self, owned: Ownership, image: ImageKind, progress: Progress) -> None:
        self.paths = owned.paths
        self.started = False
        """Whether ``cloud``, ``network`` and ``fleet`` are there."""
        self._owned = owned
        self._image = image
        self._progress = progress
        self._endings: list[tuple[str, Callable[[], object]]] = []
        # Inherited by every process that is started from here on.
        os.environ[SESSION_VARIABLE] = self.paths.session

    def start(self) -> None:
        """Build it; what takes long at the first time stays in the cache."""
        say = self._progress.say
        say(f"session {self.paths.session}")
        for directory in (self.paths.nodes, self.paths.volumes, self.paths.log_dir):
            directory.mkdir(parents=True)
        kit = None
        if self._image is ImageKind.STOCK:
            kit = ensure_agent_kit(agent_bucket_host(REGION), architecture())
            image = ensure_stock_image(kit, lambda line: say(line, who="image"))
        else:
            image = ensure_baked_image(lambda line: say(line, who="image"))
        self.cloud = Cloud(
            self.paths.log_dir, self.paths.nodes, cache=cache_dir(), log=lambda line: say(line, who="ministack")
        )
        self._endings.append(("ministack", self.cloud.stop))
        self.cloud.start()
        self.network = VpcNetwork(self.paths.session)
        self._endings.append(("network", self.network.destroy))
        self.fleet = Fleet(
            paths=self.paths,
            ec2=self.cloud.client("ec2"),
            role_of=self._role_of,
            network=self.network,
            image=image,
            progress=self._progress,
        )
        self._serve(self.network.router)
        if kit is not None:
            self._serve_packages(self.network.router, kit)
        self._endings.append(("machines", self.fleet.close))
        self.fleet.start()
        self.started = True
        say("the emulated AWS answers")

    def _serve(self, router: str) -> None:
        """Start what listens in the VPC's router."""
        zones = PrivateZones(self.cloud.client("route53"))
        self._endings.append(("DNS", DnsService(router, region=REGION, records=zones.addresses).stop))
        self._endings.append(("API relay", Relay(router, (API, API_PORT), self.cloud.port).stop))
        metadata = MetadataService(router, lookup=self.fleet.lookup, credentials=self._credentials)
        self._endings.append(("instance metadata", metadata.stop))

    def _serve_packages(self, router: str, kit: AgentKit) -> None:
        """Start what nodes of a stock image install from."""
        cache = AptCache()
        self._endings.append(("apt cache", cache.stop))
        self._endings.append(("apt relay", Relay(router, (PACKAGES, PACKAGES_PORT), cache.port).stop))
        files = agent_bucket.objects(REGION, architecture(), package=kit.package, signature=kit.signature)
        bucket = agent_bucket.AgentBucket(router, certificate=kit.server_certificate, files=files)
        self._endings.append(("bucket of the SSM agent", bucket.stop))

    def _role_of(self, profile_arn: str) -> str:
        name = profile_arn.rpartition("/")[2]
        roles = self.cloud.client("iam").get_instance_profile(InstanceProfileName=name)["InstanceProfile"]["Roles"]
        return str(roles[0]["RoleName"])

    def _credentials(self, profile: InstanceProfile) -> RoleCredentials:
        found = self.cloud.role_credentials(profile.arn)
        return RoleCredentials(
            access_key_id=found["AccessKeyId"],
            secret_access_key=found["SecretAccessKey"],
            session_token=found["Token"],
            expiration=datetime.fromisoformat(found["Expiration"]),
        )

    def bootstrap(self, app_dir: Path) -> None:
        """Make the CDK's own stack in the emulated account, by the CLI of the app in ``app_dir``."""
        self._cdk(app_dir, {}, lambda cli: cli.bootstrap())

    def deploy(self, app_dir: Path, context: Mapping[str, Any], *, rollback: bool) -> dict[str, dict[str, str]]:
        """Deploy the app in ``app_dir`` by the CDK CLI and return the outputs by stack; see ``CdkCli.deploy``."""
        return self._cdk(app_dir, context, lambda cli: cli.deploy(rollback=rollback))

    def destroy(self, app_dir: Path, context: Mapping[str, Any]) -> None:
        """Destroy the app's stacks by the CDK CLI."""
        self._cdk(app_dir, context, lambda cli: cli.destroy())

    def _cdk(self, app_dir: Path, context: Mapping[str, Any], use: Callable[[CdkCli], _T]) -> _T:
        cli = CdkCli(
            self.cloud,
            app_dir,
            self.paths.root / "cdk",
            context=context,
            on_line=self._on_cdk_line,
            check=self.raise_failure,  # a deployment that waits for its smoke test prints nothing for minutes
        )
        try:
            return use(cli)
        except CdkError as error:
            self.raise_failure()
            raise RehearsalError(str(error)) from error

    def _on_cdk_line(self, line: str) -> None:
        self.raise_failure()
        if line.strip() and not is_routine(line):
            self._progress.say(line, who="cdk")

    def raise_failure(self) -> None:
        """Raise RehearsalError if the emulated AWS or the fleet has failed."""
        if not self.cloud.alive():
            raise RehearsalError("the process of the emulated AWS (ministack) has ended")
        if self.fleet.failure:
            raise RehearsalError(self.fleet.failure)

    def explain(self) -> Iterator[str]:
        """Yield what matters of the emulated AWS's own failure."""
        if hasattr(self, "cloud") and not self.cloud.alive():
            yield "ministack has ended; the end of its log:"
            yield from (f"  | {line}" for line in self.cloud.log_tail().splitlines())

    def close(self) -> list[str]:
        """Tear everything down, in any state, and return what that did not remove by itself.

        It is removed all the same, by a search for everything that bears the session's name.
        """
        problems = []
        while self._endings:
            what, end = self._endings.pop()
            try:
                end()
            except Exception as error:
                problems.append(f"{what}: {''.join(traceback.format_exception_only(error)).strip()}")
        shutil.rmtree(self.paths.root, ignore_errors=True)
        os.environ.pop(SESSION_VARIABLE, None)
        problems += sweep.find(self.paths)
        still_there = sweep.remove(self.paths)
        if not still_there:
            self._owned.release()
        return problems
