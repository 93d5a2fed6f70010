"""NVIDIA's assembler, where a package or the machine has it."""

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path


def find_assembler():
    """The path of ``ptxas``; None where there is none."""
    package = importlib.util.find_spec("nvidia")
    folders = [Path(folder) for folder in package.submodule_search_locations] if package else []
    found = [str(path) for folder in folders for path in folder.glob("*/bin/ptxas")]
    return next(iter(found), None) or shutil.which("ptxas")


def spilled_bytes(assembler, ptx, folder):
    """Assembles PTX in a folder. Returns the bytes that the assembler spills."""
    path = folder / "kernel.ptx"
    path.write_text(ptx)
    target = ptx.split(".target ")[1].split()[0].rstrip(",")
    command = [assembler, "-v", f"-arch={target}", str(path), "-o", str(folder / "kernel.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return sum(map(int, re.findall(r"(\d+) bytes spill", done.stderr)))
