"""The page of a Gluon launch in a real browser: warps, waits and who ends them, shared memory, layouts, a hang."""

from __future__ import annotations

import pytest
from conftest import ROOT

pytest.importorskip("torch")
pytest.importorskip("selenium.webdriver")

from selenium.webdriver.common.by import By
from test_viz_browser import CHROMIUM, DRIVER, chrome, page  # noqa: F401
from viz_page import MISPLACED

pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER),
    reason="there is no Chromium with its driver (apt-get install chromium chromium-driver)",
)

EXAMPLE = ROOT / "examples" / "57_gluon_warp_specialize.py"
PROGRAM = """
import importlib.util

import torch
import triton_viz

spec = importlib.util.spec_from_file_location("matmul", {path!r})
matmul = importlib.util.module_from_spec(spec)
spec.loader.exec_module(matmul)
matmul.matmul_kernel = triton_viz.trace(matmul.matmul_kernel)
try:
    matmul.matmul(torch.randn(70, 72).half(), torch.randn(64, 72).half())
finally:
    triton_viz.launch()
"""


def start(page, tmp_path, path):  # noqa: F811
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(path=str(path)))
    return page(program)[0]


def line_of(text):
    (found,) = (number for number, line in enumerate(EXAMPLE.read_text().splitlines(), 1) if text in line)
    return found


def current_line(shown):
    return int(shown.find(".code .current").get_attribute("data-line"))


def slots(shown, name):
    return [slot.text for slot in shown.all(f'.allocation[data-name="{name}"] .slot')]


def test_warps_wait_for_copies(page, tmp_path):  # noqa: F811
    shown = start(page, tmp_path, EXAMPLE)
    assert "simulated on sim:sm_90" in shown.text("#facts")
    names = [
        f"warp {warp} ({'default' if warp < 4 else 'worker 1' if warp == 4 else 'idle'})" for warp in range(8)
    ]
    assert [label.text for label in shown.all(".warps text")] == names
    shown.wait_for("#chip-clean")
    # The page opens at the first copy: the box of A of this program.
    assert shown.text("#op-title") == "copy to shared"
    assert current_line(shown) == line_of("tma.async_load(a_desc")
    assert shown.text("#op-note").endswith("reads 2 048 of 2 048 lanes")
    assert shown.find('.tab[aria-selected="true"]').text.startswith("a_desc")
    assert slots(shown, "a_smem") == ["0: copy in flight", "1: no copy", "2: no copy"]
    assert slots(shown, "full")[0] == "phase 0: 1 of 1 arrival, 8 192 bytes missing"
    # The first wait of the consumer: it ends with the copies of both operands.
    shown.do(shown.find(".name-wait[data-event]:not(.current)").click)
    while "full[0]" not in shown.text("#event-text"):
        number = int(shown.find(".sim-event.current").get_attribute("data-event"))
        following = [
            mark for mark in shown.all(".name-wait") if int(mark.get_attribute("data-event")) > number
        ]
        shown.do(following[0].click)
    assert shown.text("#event-text").startswith("warp 0 (default): wait is over, full[0], phase 0")
    assert current_line(shown) == line_of("mbarrier.wait(full")
    waited = [button.text for button in shown.all("#event-after button")]
    assert len(waited) == 3
    assert all(text.startswith("warp 4 (worker 1): ") for text in waited)
    assert ["8 192 bytes" in text for text in waited] == [True, False, False]
    assert ["completes the phase" in text for text in waited] == [False, False, True]
    assert slots(shown, "a_smem")[0] == "0: 1 copy arrived"
    arrows = shown.all(".warps .arrow.after")
    assert len(arrows) == 3
    assert all(float(arrow.get_attribute("x1")) < float(arrow.get_attribute("x2")) for arrow in arrows)
    assert shown.driver.execute_script(MISPLACED) == []
    shown.picture("visualizer-gluon")
    # A click on an arrival selects it; the waits that it ends are listed there.
    shown.do(shown.all("#event-after button")[2].click)
    assert current_line(shown) == line_of("tma.async_load(b_desc")
    awaited = [button.text for button in shown.all("#event-before button")]
    assert [text.split(":")[0] for text in awaited] == [f"warp {warp} (default)" for warp in range(4)]
    # The arrow keys follow the order of the simulator.
    number = int(shown.find(".sim-event.current").get_attribute("data-event"))
    shown.press("\ue014")
    assert int(shown.find(".sim-event.current").get_attribute("data-event")) == number + 1


def test_layouts_are_those_of_the_code_that_ran(page, tmp_path):  # noqa: F811
    shown = start(page, tmp_path, EXAMPLE)
    shown.find("body").send_keys("l")
    shown.wait_for('body[data-layouts="0:90"]')
    assert not shown.find("#layout-target").is_displayed()
    assert shown.text("#layout-note").endswith("8 warps")
    buttons = shown.all("#layout-list button[data-layout]")
    assert "[64, 32] shared memory" in buttons[0].text
    assert "[64, 64]" in buttons[1].text
    for button in buttons[:2]:
        button.click()
        drawn = shown.find("#layout canvas").get_attribute("data-layout")
        assert drawn == button.get_attribute("data-layout")


def test_a_hang_shows_both_sides(page, tmp_path):  # noqa: F811
    right = "(step // STAGES & 1) ^ 1)"
    text = EXAMPLE.read_text()
    assert text.count(right) == 1
    wrong = tmp_path / "hang.py"
    wrong.write_text(text.replace(right, "step // STAGES & 1)"))
    shown = start(page, tmp_path, wrong)
    shown.wait_for("#chip-failed")
    assert "deadlock" in shown.text("#finding-text")
    stuck = shown.all(".sim-event.stuck")
    assert len(stuck) == 5
    titles = [mark.find_element(By.TAG_NAME, "title").get_attribute("textContent") for mark in stuck]
    (producer,) = (mark for mark, title in zip(stuck, titles, strict=True) if "empty[0]" in title)
    shown.do(producer.click)
    found = shown.text("#stuck")
    assert shown.text("#event-text").startswith("warp 4 (worker 1): begins to wait, empty[0], phase 0")
    assert "The phase has 0 of 1 arrival." in found
    assert (
        f"Arrivals come from mbarrier_arrive_times in line {line_of('mbarrier.arrive(empty')} (default)"
        in found
    )
    others = [button.text for button in shown.all("#stuck button")]
    assert [text.split(":")[0] for text in others] == [f"warp {warp} (default)" for warp in range(4)]
    assert all("full[0]" in text for text in others)
    shown.do(shown.find("#stuck button").click)
    assert current_line(shown) == line_of("mbarrier.wait(full")
    assert f"mbarrier_expect in line {line_of('mbarrier.expect(')} (worker 1)" in shown.text("#stuck")


@pytest.mark.parametrize("size", [(1024, 640), (420, 800)], ids="{0[0]}x{0[1]}".format)
def test_a_small_window_shows_everything(page, tmp_path, size):  # noqa: F811
    shown = start(page, tmp_path, EXAMPLE)
    metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False}
    shown.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        for link in ("event=0", "event=60", "program=1&event=100"):
            shown.open(link)
            assert shown.driver.execute_script(MISPLACED) == [], link
            assert shown.find(".sim-event.current").is_displayed()
    finally:
        shown.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
