"""User data of a node: frozen text that brings the node programs onto the machine and starts them.

It runs once, on an instance's first boot, and changing it would stop and start every running instance
(AWS::EC2::Instance UserData), so it holds nothing that may ever have to change: no version, no key, no setting. What
may change, the signing key of the SSM agent included, is in the bundle that it fetches.
"""

from __future__ import annotations

import json
import shlex

from slurm_cluster.model.flows import Role
from slurm_cluster.model.node_files import COMMAND, CONFIG_DIR, FAILURE_PREFIX, INSTALL_DIR
from slurm_cluster.model.spec import BUNDLE_PARAMETER

_TEMPLATE = """\
#!/bin/bash
set -Eeuo pipefail
step=start
fail() {{
  trap - ERR
  echo "{failure} step=user-data:$step reason=${{1//$'\\n'/ }}" | tee /dev/console >&2 || true
  exit 1
}}
trap 'fail "line $LINENO: $BASH_COMMAND"' ERR
install -d {config}
cat > {config}/node.json <<'END'
{identity}
END
step=packages
if ! python3 -c 'import boto3' 2> /dev/null; then
  systemctl stop apt-daily.timer apt-daily-upgrade.timer apt-daily.service apt-daily-upgrade.service || true
  export DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=a
  apt="apt-get -y -o DPkg::Lock::Timeout=600 -o Acquire::Retries=5"
  n=0
  until $apt -o APT::Update::Error-Mode=any update && $apt install --no-install-recommends python3-boto3; do
    n=$((n + 1))
    [ $n -lt 40 ] || fail "python3-boto3 cannot be installed: is there a route to the package mirror?"
    sleep 15
    dpkg --configure -a || true
  done
fi
step=bundle
cat > {config}/fetch.py <<'END'
import json, os, sys, tempfile, time, urllib.request as u, zipfile
open_ = u.build_opener(u.ProxyHandler({{}})).open
def imds(path, method, **headers):
    request = u.Request("http://169.254.169.254/latest/" + path, method=method, headers=headers)
    return open_(request, timeout=5).read().decode()
def fetch():
    token = imds("api/token", "PUT", **{{"X-aws-ec2-metadata-token-ttl-seconds": "300"}})
    region = imds("meta-data/placement/region", "GET", **{{"X-aws-ec2-metadata-token": token}})
    import boto3
    ssm = boto3.client("ssm", region_name=region)
    b = json.loads(ssm.get_parameter(Name=sys.argv[1])["Parameter"]["Value"])
    name = os.path.splitext(os.path.basename(b["key"]))[0]
    root = sys.argv[2]
    os.makedirs(root, exist_ok=True)
    new = tempfile.mkdtemp(dir=root)
    archive = new + ".zip"
    boto3.client("s3", region_name=region).download_file(b["bucket"], b["key"], archive)
    zipfile.ZipFile(archive).extractall(new)
    os.unlink(archive)
    os.chmod(new, 0o755)
    if not os.path.isdir(root + "/" + name):
        os.rename(new, root + "/" + name)
    if not os.path.islink(root + "/current"):
        os.symlink(name, root + "/current")
for left in range(60, -1, -1):
    try:
        fetch()
        break
    except Exception as problem:
        if not left:
            sys.exit(str(problem))
        time.sleep(10)
END
out=$(python3 {config}/fetch.py {parameter} {install} 2>&1) || fail "the node bundle cannot be fetched: $out"
step=install
cat > {command} <<'END'
#!/bin/sh
exec env PYTHONPATH={install}/current python3 -P -m slurm_cluster.runtime.node "$@"
END
chmod 755 {command}
exec {command} bootstrap
"""


def render(*, parameter_path: str, role: Role, node_name: str | None) -> str:
    """Return the user data of one instance.

    Args:
        parameter_path: SSM path of the cluster's parameters; may hold unresolved CDK tokens.
        role: head or worker.
        node_name: Slurm node name of a worker, None on the head.

    Raises:
        ValueError: a worker without a node name, or a head with one.
    """
    if (role is Role.WORKER) != bool(node_name):
        raise ValueError(
            f"role {role.value} with node name {node_name!r}: a worker has a node name and a head has none"
        )
    identity = {"parameter_path": parameter_path, "role": role.value, "node_name": node_name}
    return _TEMPLATE.format(
        failure=FAILURE_PREFIX,
        config=CONFIG_DIR,
        identity=json.dumps(identity),
        # Not quoted by shlex: it would see a CDK token's own characters, which are not those of the final path.
        parameter=f"'{parameter_path}/{BUNDLE_PARAMETER}'",
        install=shlex.quote(str(INSTALL_DIR)),
        command=shlex.quote(str(COMMAND)),
    )
