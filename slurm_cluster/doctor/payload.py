"""The doctor as one file, and as the script that carries it to a worker."""

from __future__ import annotations

import base64
import io
import shlex
import zipfile
from collections.abc import Mapping
from importlib import resources
from importlib.resources.abc import Traversable

from slurm_cluster.doctor.worker import NO_INTERPRETER

PACKAGE = "slurm_cluster"
_NODE_PARTS = (
    *("__init__", "commands", "errors", "files", "host_facts", "identity", "instance_metadata", "node_table"),
    *("probe_connections", "probe_facts", "slurm_facts", "status", "troubles", "units"),
)
_START = """\
import sys

if sys.version_info < (3, 11):
    sys.stderr.write("slurm-doctor needs Python 3.11 or newer, not %s: start it as `python3.11 FILE`\\n" % sys.version)
    sys.exit(2)
from slurm_cluster.doctor.command_line import start

start()
"""
_SHEBANG = b"#!/usr/bin/env python3\n"
_DATE = (2020, 1, 1, 0, 0, 0)

_SCRIPT = """\
#!/bin/sh
# slurm-doctor asks this machine what it sees. It changes nothing and takes seconds.
PATH=$PATH:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin:/opt/slurm/bin:/opt/slurm/sbin
export PATH
{request}
for python in python3 python3.14 python3.13 python3.12 python3.11; do
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && exec "$python" -c '{loader}' "$0"
done
command -v bash >/dev/null && exec bash -c "$(sed '1,/^@BASH$/d;/^@ARCHIVE$/,$d' "$0")"
exit {no_interpreter}
@BASH
{bash}
@ARCHIVE
{archive}
"""
_LOADER = (
    "import base64,os,sys\n"
    'text=open(sys.argv[1]).read().split("\\n@ARCHIVE\\n")[1]\n'
    'file=os.fdopen(os.memfd_create("slurm-doctor"),"wb")\n'
    "file.write(base64.b64decode(text)); file.flush()\n"
    'sys.path.insert(0,"/proc/self/fd/%d" % file.fileno())\n'
    "from slurm_cluster.doctor import worker\n"
    "sys.exit(worker.main(os.environ))"
)


def archive() -> bytes:
    """Return the doctor's modules as a zip archive that Python can run; the same bytes each time."""
    root = resources.files(PACKAGE)
    content = {f"{PACKAGE}/{name}": data for name, data in sorted(_content(root).items())}
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as target:
        for name, data in {"__main__.py": _START.encode(), **content}.items():
            target.writestr(zipfile.ZipInfo(name, _DATE), data, zipfile.ZIP_DEFLATED)
    return stream.getvalue()


def application() -> bytes:
    """Return ``slurm-doctor.pyz``."""
    return _SHEBANG + archive()


def _content(root: Traversable) -> dict[str, bytes]:
    runtime = root / "runtime"
    parts = {"__init__.py": root / "__init__.py"}
    for folder in ("model", "doctor"):
        parts |= {f"{folder}/{item.name}": item for item in (root / folder).iterdir()}
    parts |= {f"runtime/{item.name}": item for item in runtime.iterdir()}
    parts |= {f"runtime/node/{name}.py": runtime / "node" / f"{name}.py" for name in _NODE_PARTS}
    return {name: item.read_bytes() for name, item in parts.items() if name.endswith((".py", ".bash"))}


def script(request: Mapping[str, str]) -> str:
    """Return the shell script that has a machine carry out ``worker.main`` with these variables.

    Where it has no Python that is new enough, bash answers with the part that bash can find out.
    """
    variables = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in request.items())
    bash = (resources.files(PACKAGE) / "doctor" / "worker.bash").read_text()
    encoded = base64.encodebytes(archive()).decode()
    return _SCRIPT.format(
        request=variables,
        loader=_LOADER,
        no_interpreter=NO_INTERPRETER,
        bash=bash.rstrip(),
        archive=encoded.rstrip(),
    )
