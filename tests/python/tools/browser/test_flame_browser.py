"""The flame graph in a browser: a click makes a frame as wide as the graph."""

import re
import shutil
import subprocess

import pytest

from tilewright._flame import flame_graph

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
STACKS = [(["a", "line 3"], 700.0), (["a", "line 4"], 200.0), (["b", "line 9"], 100.0)]


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium (apt-get install chromium)")
def test_a_click_zooms(tmp_path):
    click = "boxes.find((box) => box.name === 'line 4').group.dispatchEvent(new Event('click'));</script>"
    page = tmp_path / "flame.html"
    page.write_text(flame_graph(STACKS, is_html=True).replace("</script>", click))
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", page.as_uri()]
    dom = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    shown = {}
    for group in re.findall(r"<g.*?</g>", dom):
        if "display: none" not in group:
            name = re.search(r"<title>(.*?):", group).group(1)
            shown[name] = float(re.search(r'width="([\d.]+)"', group).group(1))
    assert shown == {"all": 1200.0, "a": 1200.0, "line 4": 1200.0}
