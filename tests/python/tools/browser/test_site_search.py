"""The ranking of the site's search in a browser: Sphinx loads `docs/scorer.js` after its own `Scorer`."""

import shutil
import subprocess

import pytest
from conftest import DEVICE, ROOT

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.skipif(DEVICE != "cpu", reason="once is enough"),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium (apt-get install chromium)"),
]

# As in Sphinx's searchtools.js. The results have equal scores.
PAGE = """
<pre></pre>
<script>if (typeof Scorer === "undefined") {{ var Scorer = {{ title: 15 }}; }}</script>
<script>{scorer}</script>
<script>
const results = [["design/dots", "Dots"], ["performance", "Performance"], ["reference/arithmetic", "Arithmetic"],
                 ["reference/dot", "Dots > tl.dot"], ["performance/dots", "Dots"]];
const ranked = results.map(([page, title]) => [Scorer.score([page, title, "", null, Scorer.title]), page]);
ranked.sort((a, b) => b[0] - a[0]);
document.querySelector("pre").textContent = ranked.map(([score, page]) => page).join(" ");
</script>
"""


@pytest.mark.parametrize("query", ["tl.dot", "dot", "Dot+"])
def test_the_section_of_a_function_comes_first_and_design_last(query, tmp_path):
    page = tmp_path / "search.html"
    page.write_text(PAGE.format(scorer=(ROOT / "docs" / "scorer.js").read_text()))
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    done = subprocess.run(
        [*command, f"{page.as_uri()}?q={query}"], capture_output=True, text=True, check=True
    )
    ranked = done.stdout.partition("<pre>")[2].partition("</pre>")[0].split()
    assert ranked == [
        "reference/dot",
        "reference/arithmetic",
        "design/dots",
        "performance",
        "performance/dots",
    ]
