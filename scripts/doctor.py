"""Write the doctor as one file, ``slurm-doctor.pyz``, for clusters that this package did not make."""

from __future__ import annotations

import argparse
from pathlib import Path

from slurm_cluster.doctor import payload


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = argparse.ArgumentParser(description=__doc__)
    found.add_argument("file", type=Path, nargs="?", default=Path("slurm-doctor.pyz"))
    return found


def main() -> None:
    """Write the file that the command line names."""
    target: Path = parser().parse_args().file
    target.write_bytes(payload.application())
    target.chmod(0o755)
    print(f"{target}: {target.stat().st_size} bytes; copy it to the head and run it there as root")


if __name__ == "__main__":
    main()
