"""``python -m tilewright.viz trace.twtrace``: shows saved traces, or writes the page of them."""

from __future__ import annotations

import argparse
import sys

from tilewright.viz import _server, load, save_html


def main() -> int:
    """Serves the page until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m tilewright.viz", description="Show saved traces")
    parser.add_argument("trace", nargs="+", help="a file of triton_viz.save(...)")
    parser.add_argument("--port", type=int, default=0, help="the port on this machine; any free one without")
    parser.add_argument("-o", "--output", help="write the page to this HTML file, and serve nothing")
    options = parser.parse_args()
    try:
        for number, trace in enumerate(options.trace):
            load(trace, append=number > 0)
        if options.output is not None:
            save_html(options.output)
            return 0
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    _server.launch(port=options.port, block=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
