"""``python -m tilewright.viz trace.twtrace``: shows saved traces, or writes the page of them."""

from __future__ import annotations

import argparse
import sys

from tilewright._files import cannot
from tilewright.viz import _server, load, save_html


def main() -> int:
    """Serves the page until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m tilewright.viz", description="Show saved traces")
    parser.add_argument("trace", nargs="+", help="a file of triton_viz.save(...)")
    parser.add_argument(
        "--port", type=int, help="the port; without it that of TILEWRIGHT_VIZ_PORT, else any free one"
    )
    parser.add_argument("-o", "--output", help="write the page to this HTML file, and serve nothing")
    options = parser.parse_args()
    if (failure := _show(options)) is not None:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    return 0


def _show(options: argparse.Namespace) -> str | None:
    """Serves or writes the page of the traces; returns an error text."""
    for number, trace in enumerate(options.trace):
        try:
            load(trace, append=number > 0)
        except OSError as error:
            return cannot("read", trace, error)
        except ValueError as error:
            return str(error)
    if options.output is not None:
        try:
            save_html(options.output)
        except OSError as error:
            return cannot("write", options.output, error)
        return None
    try:
        _server.launch(port=options.port, block=True)
    except OSError as error:
        return error.strerror
    except ValueError as error:
        return str(error)
    return None


if __name__ == "__main__":
    sys.exit(main())
