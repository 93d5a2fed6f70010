"""The distribution ``triton``: a ``.pth`` file and metadata, so that resolvers find the name.

``tilewright activate`` writes these files into an environment as pip would install them. ``make wheel`` packs them:
``python -m _tilewright_startup.distribution dist/tilewright-*.whl`` writes a wheel beside each of tilewright. This
module needs no compiled extension.
"""

from __future__ import annotations

from _tilewright_startup import TRITON_VERSION

PTH = "tilewright_as_triton.pth"

WHEEL_NAME = "triton-{version}-py3-none-any.whl"

_LINE = (
    'import sys; exec("try: import _tilewright_startup as startup\\nexcept ImportError: pass\\n'
    "else: startup.watch('{parts}')\")\n"
)
"""Python runs a line that begins with ``import``. After tilewright was uninstalled, the line does nothing."""

_METADATA = """\
Metadata-Version: 2.1
Name: triton
Version: {version}
Summary: Makes `import triton` import tilewright
License: MIT
Requires-Python: >=3.10
"""

_ENTRY_POINTS = """\
[triton.backends]
cpu = triton.backends.cpu
nvidia = triton.backends.nvidia
"""

_WHEEL = """\
Wheel-Version: 1.0
Generator: tilewright
Root-Is-Purelib: true
Tag: py3-none-any
"""


def version_for(tilewright: str) -> str:
    """Returns the version of the distribution: that of Triton, with tilewright's as its local label."""
    label = "".join(letter if letter.isalnum() else "." for letter in tilewright.lower())
    return f"{TRITON_VERSION}+tilewright.{label}"


def pth_text(parts: tuple[str, ...], folder: str = "") -> str:
    """Returns the text of the ``.pth`` file; ``folder`` is that of tilewright if the environment has it elsewhere."""
    return (folder and f"{folder}\n") + _LINE.format(parts=",".join(parts))


def files(version: str, pth: str, needs: str = "tilewright", installer: str = "") -> dict[str, str]:
    """Returns the files of the distribution, relative to ``site-packages``.

    A wheel names no installer: pip adds itself.
    """
    folder = f"triton-{version}.dist-info"
    found = {
        PTH: pth,
        f"{folder}/METADATA": _METADATA.format(version=version) + (needs and f"Requires-Dist: {needs}\n"),
        f"{folder}/WHEEL": _WHEEL,
        f"{folder}/entry_points.txt": _ENTRY_POINTS,
        f"{folder}/top_level.txt": "triton\n",
    }
    if installer:
        found[f"{folder}/INSTALLER"] = f"{installer}\n"
    return with_record(found, folder)


def with_record(files: dict[str, str], folder: str) -> dict[str, str]:
    """Adds the ``RECORD``, which lists every file with its hash."""
    import base64
    import hashlib

    lines = []
    for name, text in files.items():
        data = text.encode()
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}\n")
    record = f"{folder}/RECORD"
    return {**files, record: "".join([*lines, f"{record},,\n"])}


def write_wheel(tilewright_wheel: str) -> str:
    """Writes the wheel of ``triton`` beside a wheel of tilewright; returns its path."""
    import os
    import zipfile

    folder, name = os.path.split(tilewright_wheel)
    version = version_for(name.split("-")[1])
    path = os.path.join(folder, WHEEL_NAME.format(version=version))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for inner, text in files(version, pth_text(("triton",))).items():
            # The same wheel in each build: without the time of day.
            archive.writestr(zipfile.ZipInfo(inner), text)
    return path


if __name__ == "__main__":
    import sys

    for wheel in sys.argv[1:]:
        print(write_wheel(wheel))
