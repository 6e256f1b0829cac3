"""The instance metadata service, version 2 only (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/configuring-IMDS-use.html)."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Callable

from slurm_cluster.runtime.node.errors import NodeError

ENDPOINT = "http://169.254.169.254"
_TOKEN_SECONDS = 300
_ATTEMPTS = 30
_TIMEOUT = 5


class InstanceMetadata:
    """Reads this instance's metadata; answers are asked for each time.

    Args:
        endpoint: address of the service.
        sleep: waits between attempts.
    """

    def __init__(self, endpoint: str = ENDPOINT, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._endpoint = endpoint
        self._sleep = sleep
        # The service is link-local: a proxy of the environment must not be asked for it.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def get(self, path: str) -> str:
        """Return the value at ``path`` below ``meta-data/``.

        Raises:
            NodeError: the service does not answer or has no such value.
        """
        problem: Exception | None = None
        for attempt in range(_ATTEMPTS):
            if attempt:
                self._sleep(1)
            try:
                token = self._request(
                    "/latest/api/token", "PUT", {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_SECONDS)}
                )
                return self._request(f"/latest/meta-data/{path}", "GET", {"X-aws-ec2-metadata-token": token})
            except urllib.error.HTTPError as error:
                problem = error
                if error.code == 404:
                    break
            except OSError as error:
                problem = error
        raise NodeError(
            f"instance metadata {path}: {problem}: the instance needs MetadataOptions with HttpEndpoint enabled"
        )

    def _request(self, path: str, method: str, headers: dict[str, str]) -> str:
        request = urllib.request.Request(self._endpoint + path, method=method, headers=headers)  # noqa: S310 - http
        with self._opener.open(request, timeout=_TIMEOUT) as answer:
            return str(answer.read().decode())

    @property
    def region(self) -> str:
        """Region, e.g. ``eu-central-1``."""
        return self.get("placement/region")

    @property
    def instance_id(self) -> str:
        """Instance id, ``i-...``."""
        return self.get("instance-id")

    @property
    def private_address(self) -> str:
        """Primary private IPv4 address."""
        return self.get("local-ipv4")

    @property
    def url_suffix(self) -> str:
        """Domain of the partition's services: ``amazonaws.com``, in China ``amazonaws.com.cn``."""
        return self.get("services/domain")
