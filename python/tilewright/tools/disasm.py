"""``triton.tools.disasm``: the machine code of a kernel as text, with the control codes of each instruction.

NVIDIA's ``cuobjdump`` does the work: ``TRITON_CUOBJDUMP_PATH`` names it, or it is on the path.
"""

from __future__ import annotations

import functools
import re
import subprocess
import tempfile
from typing import Any

_INSTRUCTION = re.compile(
    r"^\s*/\*(?P<at>[0-9a-f]{4,})\*/\s+(?P<text>[^;]*;?)\s*/\*\s*(?P<code>0x[0-9a-f]{16})\s*\*/"
)
_CODE = re.compile(r"^\s*/\*\s*(0x[0-9a-f]{16})\s*\*/")
_FUNCTION = re.compile(r"^\s*Function\s*:\s*(\S+)")


def path_to_cuobjdump() -> tuple[str, str]:
    """The path of ``cuobjdump``, and its release."""
    from tilewright import knobs

    tool = knobs.nvidia.cuobjdump
    return tool.path, tool.version


@functools.lru_cache
def get_sass(cubin_asm: bytes, fun: str | None = None) -> str:
    """The machine code of a cubin, such as ``kernel.asm["cubin"]``; of one function, if it is named."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin_asm)
        file.flush()
        return extract(file.name, fun)


def extract(file_path: str, fun: str | None) -> str:
    """The machine code in a file: a line for each instruction, with its control codes, and labels where jumps go."""
    path, _ = path_to_cuobjdump()
    command = [path, "-sass", *([] if fun is None else ["-fun", fun]), file_path]
    lines = subprocess.check_output(command, text=True).splitlines()
    parts: list[str] = []
    at = 0
    while at < len(lines):
        if (function := _FUNCTION.match(lines[at])) is not None:
            parts.append(f"Function:{function[1]}")
            body, at = _body(lines, at + 1)
            labels = {target: f"LBB_{number}" for number, target in enumerate(sorted(_targets(body)))}
            for address, text, control in body:
                if address in labels:
                    parts.append(f"{labels[address]}:")
                parts.append(f"{control}\t{_with_labels(text, labels)}")
            continue
        at += 1
    return "\n".join(parts)


def processSassLines(fline: str, sline: str, labels: dict[int, Any]) -> tuple[str, str]:
    """The control codes and the text of an instruction, of its two lines; where it jumps to is added to ``labels``."""
    found = _INSTRUCTION.match(fline)
    if found is None:
        raise ValueError(f"this is no line of an instruction: {fline!r}")
    text = found["text"].strip()
    for target in _targets([(0, text, "")]):
        labels.setdefault(target, len(labels))
    return parseCtrl(sline), text


def parseCtrl(sline: str) -> str:
    """The control codes in the second line of an instruction.

    They are the barriers (of six) for which the instruction waits, the barriers that it sets after its reads and after
    its writes, whether the warp scheduler may switch to another warp, and the cycles to the next instruction.
    """
    found = _CODE.match(sline)
    if found is None:
        raise ValueError(f"this is no line with control codes: {sline!r}")
    bits = int(found[1], 16) >> 41
    stall, is_yield = bits & 0xF, bits >> 4 & 1
    write, read, wait = bits >> 5 & 7, bits >> 8 & 7, bits >> 11 & 0x3F
    waits = "".join(str(barrier) if wait >> barrier & 1 else "-" for barrier in range(6))

    def barrier(number: int) -> str:
        return "-" if number == 7 else str(number)

    return f"{waits}:{barrier(read)}:{barrier(write)}:{'-' if is_yield else 'Y'}:{stall:x}"


def _body(lines: list[str], at: int) -> tuple[list[tuple[int, str, str]], int]:
    """The instructions up to the next function: address, text, control codes."""
    found = []
    while at < len(lines) and _FUNCTION.match(lines[at]) is None:
        instruction = _INSTRUCTION.match(lines[at])
        if instruction is not None and at + 1 < len(lines) and _CODE.match(lines[at + 1]):
            found.append((int(instruction["at"], 16), instruction["text"].strip(), parseCtrl(lines[at + 1])))
            at += 1
        at += 1
    return found, at


def _targets(body: list[tuple[int, str, str]]) -> set[int]:
    """The addresses that instructions jump to."""
    texts = (text for _, text, _ in body if re.search(r"\b(BRA|BSSY|CALL|JMP)\b", text))
    return {int(target, 16) for text in texts for target in re.findall(r"\b0x([0-9a-f]+)\s*;?$", text)}


def _with_labels(text: str, labels: dict[int, str]) -> str:
    return re.sub(r"\b0x([0-9a-f]+)(\s*;?)$", lambda m: labels.get(int(m[1], 16), f"0x{m[1]}") + m[2], text)


def main() -> None:
    """``python -m triton.tools.disasm file.cubin [function]``."""
    import sys

    if len(sys.argv) not in (2, 3):
        sys.exit("usage: python -m triton.tools.disasm <file.cubin> [<function>]")
    from tilewright._output import print_result

    print_result(extract(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None) + "\n")


if __name__ == "__main__":
    main()
