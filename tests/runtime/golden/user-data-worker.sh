#!/bin/bash
set -Eeuo pipefail
step=start
fail() {
  trap - ERR
  echo "slurm-cluster: FAILED step=user-data:$step reason=${1//$'\n'/ }" | tee /dev/console >&2 || true
  exit 1
}
trap 'fail "line $LINENO: $BASH_COMMAND"' ERR
install -d /etc/slurm-cluster
cat > /etc/slurm-cluster/node.json <<'END'
{"parameter_path": "/slurm-cluster/stack/0f0f0f0f", "role": "worker", "node_name": "cpu-static-1"}
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
cat > /etc/slurm-cluster/fetch.py <<'END'
import json, os, sys, tempfile, time, urllib.request as u, zipfile
open_ = u.build_opener(u.ProxyHandler({})).open
def imds(path, method, **headers):
    request = u.Request("http://169.254.169.254/latest/" + path, method=method, headers=headers)
    return open_(request, timeout=5).read().decode()
def fetch():
    token = imds("api/token", "PUT", **{"X-aws-ec2-metadata-token-ttl-seconds": "300"})
    region = imds("meta-data/placement/region", "GET", **{"X-aws-ec2-metadata-token": token})
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
out=$(python3 /etc/slurm-cluster/fetch.py '/slurm-cluster/stack/0f0f0f0f/bundle' /opt/slurm-cluster 2>&1) || fail "the node bundle cannot be fetched: $out"
step=install
cat > /usr/local/sbin/slurm-cluster <<'END'
#!/bin/sh
exec env PYTHONPATH=/opt/slurm-cluster/current python3 -P -m slurm_cluster.runtime.node "$@"
END
chmod 755 /usr/local/sbin/slurm-cluster
exec /usr/local/sbin/slurm-cluster bootstrap
