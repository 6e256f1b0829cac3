"""Shell scripts that break something on a node, each with the one that mends it."""

from __future__ import annotations

KEY = "/etc/munge/munge.key"
OTHER_KEY = f"cp -p {KEY} /root/munge.key; head -c 64 /dev/urandom > {KEY}; systemctl restart munge"
OWN_KEY = f"mv /root/munge.key {KEY}; systemctl restart munge"

NO_HEAD = """\
systemctl stop slurm-cluster-names
cp /etc/hosts /root/hosts
cp -L /etc/resolv.conf /root/resolv.conf
name=$(awk '$2 ~ /^head[.]/ { print $2 }' /etc/hosts)
grep -v " $name" /root/hosts > /etc/hosts
[ -z "%s" ] || echo "%s $name" >> /etc/hosts
rm /etc/resolv.conf
echo nameserver 127.0.0.99 > /etc/resolv.conf
"""
"""Takes twice where the head's name shall lead instead, nothing for nowhere."""

HEAD_AGAIN = """\
cat /root/hosts > /etc/hosts
rm /etc/resolv.conf
cp /root/resolv.conf /etc/resolv.conf
systemctl start slurm-cluster-names
"""

HUNG_SERVER = """\
cat > /root/server.py <<'END'
import ctypes, os, time
fd = os.open("/dev/fuse", os.O_RDWR)
data = f"fd={fd},rootmode=40000,user_id=0,group_id=0".encode()
assert ctypes.CDLL(None).mount(b"server:/", b"/mnt/shared", b"fuse", 0, data) == 0
open("/root/mounted", "w").close()
time.sleep(600)
END
mkdir -p /mnt/shared
[ -e /dev/fuse ] || mknod /dev/fuse c 10 229
setsid python3 /root/server.py </dev/null >/root/server.log 2>&1 &
echo $! > /root/server.pid
for n in $(seq 100); do [ ! -e /root/mounted ] || exit 0; sleep 0.1; done
cat /root/server.log >&2
exit 1
"""
"""A FUSE file system whose server never answers: stat waits in the kernel, as with a dead file server."""

NO_SERVER = "kill -KILL $(cat /root/server.pid); umount -l /mnt/shared; rm /root/server.* /root/mounted"

_STATE = "$(scontrol show config | awk '$1 == \"StateSaveLocation\" { print $3 }')"
FULL_STATE = f"""\
room=$(df --output=avail --block-size=1 {_STATE} | tail -n 1)
fallocate --length $((room - 8 * 1024 * 1024)) {_STATE}/../fill
"""
EMPTY_STATE = f"rm {_STATE}/../fill"

_SPOOL = "/var/lib/slurm/slurmd"
FULL_SPOOL = f"""\
mount -t tmpfs -o size=1m full {_SPOOL}
! dd if=/dev/zero of={_SPOOL}/fill bs=4k 2>/dev/null
"""
EMPTY_SPOOL = f"umount -l {_SPOOL}"

_OVERRIDES = "/etc/slurm-cluster/override.d/slurm.conf"
FEW_PORTS = f"""\
cp {_OVERRIDES} /root/override
echo SrunPortRange=61000-61009 >> {_OVERRIDES}
slurm-cluster apply
systemd-run --quiet --unit=holder python3 -c '
import socket, time
held = [socket.create_server(("", port)) for port in range(61000, 61008)]
time.sleep(600)'
for n in $(seq 100); do ! ss -ltn | grep -q :61007 || exit 0; sleep 0.1; done
exit 1
"""
MANY_PORTS = f"systemctl stop holder; cat /root/override > {_OVERRIDES}; slurm-cluster apply"

OTHER_NAME = """\
sed -i.whole 's/-N [^"]*/-N cpu-static-9/' /etc/default/slurmd
systemctl restart --no-block slurmd
sleep 2
"""
OWN_NAME = "mv /etc/default/slurmd.whole /etc/default/slurmd; systemctl restart slurmd"

REFUSED = "for n in $(seq 100); do ! sinfo -hN -o %T | grep -q inval || break; sleep 0.2; done"
"""slurmctld has looked at what the nodes say that they have."""

MISSING_PACKAGE = """\
cp -p /var/lib/dpkg/status /root/dpkg-status
sed -i '/^Package: dbus$/,/^$/s/^Status: .*/Status: deinstall ok config-files/' /var/lib/dpkg/status
"""
PACKAGE_AGAIN = "mv /root/dpkg-status /var/lib/dpkg/status"
APT_LOCKED = f"""\
{MISSING_PACKAGE}
systemd-run --quiet --unit=holder python3 -c '
import fcntl, time
held = [open(path, "w") for path in ("/var/lib/apt/lists/lock", "/var/lib/dpkg/lock-frontend")]
for file in held:
    fcntl.lockf(file, fcntl.LOCK_EX)
time.sleep(600)'
"""
APT_FREE = f"systemctl stop holder; {PACKAGE_AGAIN}"

_UNITS = "/etc/systemd/system"


def in_the_way(path: str) -> tuple[str, str]:
    """Return scripts that put a directory where the node programs write a file, and the file again."""
    return f"mv {path} /root/in-the-way; mkdir {path}", f"rmdir {path}; mv /root/in-the-way {path}"


def does_not_start(unit: str) -> tuple[str, str]:
    """Return scripts that stop a unit and keep it from starting, and that let it start."""
    drop_in = f"{_UNITS}/{unit}.service.d/90-broken.conf"
    return (
        f"mkdir -p {_UNITS}/{unit}.service.d\nprintf '[Service]\\nExecStartPre=/bin/false\\n' > {drop_in}\n"
        f"systemctl daemon-reload\nsystemctl stop {unit}",
        # a unit that was not asked for since has not failed, and has nothing to be reset
        f"rm {drop_in}\nsystemctl daemon-reload\nsystemctl reset-failed {unit} || true",
    )


NO_UNIT = in_the_way(f"{_UNITS}/slurm-cluster-names.service")
NO_CLOUD_INIT_FILE = in_the_way("/etc/cloud/cloud.cfg.d/99-slurm-cluster.cfg")
NO_DEFAULTS = in_the_way("/etc/default/slurmd")
NO_AGENT = does_not_start("amazon-ssm-agent")
NO_MUNGE = does_not_start("munge")
OTHER_USER_ID = (
    "sed -i.whole 's/^\\([^:]*\\):x:1000:/\\1:x:1001:/' /etc/passwd; ! getent passwd 1000",
    "mv /etc/passwd.whole /etc/passwd",
)
_READ_ONLY = "mount --bind {0} {0}\nmount -o remount,bind,ro {0}"
READ_ONLY_PROGRAMS = _READ_ONLY.format("/usr/local/sbin")
READ_ONLY_PACKAGES = (
    "apt-mark unhold slurm-client\n" + _READ_ONLY.format("/var/lib/dpkg"),
    "umount /var/lib/dpkg",
)
NO_RULES = (
    "printf '#!/bin/sh\\necho no netfilter >&2\\nexit 1\\n' > /root/nft; chmod 755 /root/nft\n"
    "mount --bind /root/nft /usr/sbin/nft",
    "umount /usr/sbin/nft",
)
OTHER_RELEASE = (
    "printf '#!/bin/sh\\necho slurm 22.05.8\\n' > /usr/local/sbin/slurmd; chmod 755 /usr/local/sbin/slurmd",
    "rm /usr/local/sbin/slurmd",
)
_MARKER = "/var/lib/slurm-cluster/state/.slurm-cluster"
OTHER_CLUSTERS_VOLUME = (
    f'cp -p {_MARKER} /root/marker; echo \'{{"cluster_id": "another"}}\' > {_MARKER}',
    f"mv /root/marker {_MARKER}",
)

SILENT_SRUN = """\
printf '#!/bin/sh\\nexec /usr/bin/srun "$@" >/dev/null\\n' > /usr/local/bin/srun
chmod 755 /usr/local/bin/srun
"""
OWN_SRUN = "rm /usr/local/bin/srun"

_DATA_SOURCE = "/usr/lib/python3/dist-packages/rehearsal_datasource/DataSourceEc2.py"
NO_DATA_SOURCE = f"""\
cp {_DATA_SOURCE} /root/data-source
echo 'raise RuntimeError("no data source")' > {_DATA_SOURCE}
cp /var/log/cloud-init-output.log /root/output.log
cloud-init clean --logs
systemctl disable --quiet slurm-cluster-bootstrap
mv /usr/local/sbin/slurm-cluster /root/command
"""
"""A machine as new, but for its packages, whose next boot will not find EC2."""

DATA_SOURCE_AGAIN = f"cp /root/data-source {_DATA_SOURCE}; cloud-init clean --logs"


def user_data(edits: str, before: str = "true") -> str:
    """Return a script that runs the node's user data as cloud-init does, on a machine that lacks the programs.

    Args:
        edits: of the user data, options of sed, besides those that take its patience.
        before: a command to run before.
    """
    script = "/var/lib/cloud/instance/scripts/part-001"
    patience = "-e 's/sleep 15/true/' -e 's/-lt 40/-lt 2/' -e 's/Retries=5/Retries=0/' -e 's/time.sleep(10)/pass/'"
    return f"""\
mv /usr/local/sbin/slurm-cluster /root/command
cp /var/log/cloud-init-output.log /root/output.log
{before}
sed {patience} {edits} {script} > /root/user-data
! bash /root/user-data >> /var/log/cloud-init-output.log 2>&1
"""


def user_data_over(mend: str = "true") -> str:
    """Return the script that gives the programs back, after ``mend``."""
    return f"{mend}\nmv /root/command /usr/local/sbin/slurm-cluster; mv /root/output.log /var/log/cloud-init-output.log"
