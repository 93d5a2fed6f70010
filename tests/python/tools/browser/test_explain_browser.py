"""The page of ``tilewright explain`` in a real browser: lines are linked, layouts drawn, and what is drawn agrees with
what the compiler computes."""

from __future__ import annotations

import subprocess
import sys

import pytest
from conftest import ROOT

pytest.importorskip("torch")
pytest.importorskip("selenium.webdriver")

from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from test_viz_browser import CHROMIUM, DRIVER, chrome  # noqa: F401

pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER),
    reason="there is no Chromium with its driver (apt-get install chromium chromium-driver)",
)

SIGNATURE = "*fp16:16,*fp16:16,*fp16:16,i32:16,i32:16,i32:16,i32:16,1,i32:16,1,i32:16,1,64,64,32,8"


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "matmul.html"
    command = [sys.executable, "-m", "tilewright", "explain", "examples/03_matmul.py::matmul_kernel"]
    made = subprocess.run(
        [*command, "-s", SIGNATURE, "--target", "sm_80", "-o", str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    return path.as_uri()


@pytest.fixture
def page(chrome, address):  # noqa: F811
    chrome.get("about:blank")
    chrome.get(address)
    yield chrome
    assert [entry for entry in chrome.get_log("browser") if entry["level"] == "SEVERE"] == []


def find(page, selector):
    return page.find_element(By.CSS_SELECTOR, selector)


def texts(page, selector):
    return [found.text for found in page.find_elements(By.CSS_SELECTOR, selector)]


def dot_line(page):
    return page.execute_script(
        "const s = explained.data.source; return s.firstLine + s.lines.findIndex((line) => line.includes('tl.dot('))"
    )


def test_a_line_marks_what_was_made_of_it(page):
    line = dot_line(page)
    row = find(page, f'#pane-source [data-link="{line}"]')
    page.execute_script("arguments[0].scrollIntoView()", row)
    ActionChains(page).move_to_element(find(page, f'#pane-source [data-link="{line}"] .number')).perform()
    assert any("mma_sync" in text for text in texts(page, "#pane-gpu .hot"))
    assert any("mma.sync" in text for text in texts(page, "#pane-ptx .hot"))
    find(page, f'#pane-source [data-link="{line}"] .number').click()
    assert any("mma_sync" in text for text in texts(page, "#pane-gpu .pinned"))
    assert page.execute_script("return location.hash") == f"#line={line}"
    # Pinned text was scrolled to.
    box, pane = (find(page, selector).rect for selector in ("#pane-ptx .pinned", "#pane-ptx .text"))
    assert pane["y"] <= box["y"] <= pane["y"] + pane["height"]
    decisions = texts(page, "#decisions tr.pinned")
    assert any("mma.sync m16n8k16" in text and "the target has no wgmma" in text for text in decisions)


def test_stages_are_shown_and_hidden(page):
    assert not find(page, "#pane-ir").is_displayed()
    find(page, "#show-ir").click()
    assert find(page, "#pane-ir").is_displayed()
    find(page, "#show-ptx").click()
    assert not find(page, "#pane-ptx").is_displayed()


def test_the_drawn_owners_are_those_of_the_layouts(page):
    data = page.execute_script("return explained.data")
    for layout in data["layouts"]:
        owners = page.execute_script(
            "return explained.owners(explained.layouts.get(arguments[0]))", layout["id"]
        )
        names = ("register", "lane", "warp", "block", "offset")
        places = 1
        for name in names:
            places <<= len(layout[name])
        assert sum(map(len, owners)) == places
        for element in (0, len(owners) // 3, len(owners) - 1):
            for place in owners[element]:
                at = 0
                for name in names:
                    for bit, base in enumerate(layout[name]):
                        at ^= base * (place[name] >> bit & 1)
                assert at == element


def test_the_drawn_conflicts_are_those_that_the_compiler_counts(page):
    accesses = page.execute_script("return explained.data.accesses")
    with_registers = [access for access in accesses if access["registers"]]
    assert {access["kind"] for access in with_registers} == {"store", "load"}
    for access in with_registers:
        assert (
            page.execute_script("return explained.wavefronts(arguments[0])", access) == access["wavefronts"]
        )


def test_layouts_and_banks_are_drawn(page):
    find(page, "#tab-layouts").click()
    for button in page.find_elements(By.CSS_SELECTOR, "#layout-list button"):
        button.click()
        canvas = find(page, "#layout canvas")
        assert canvas.get_attribute("data-layout") == button.get_attribute("data-layout")
        assert canvas.rect["width"] > 20
    ActionChains(page).move_to_element_with_offset(canvas, 0, 0).perform()
    assert find(page, "#layout .owner").text.startswith("[")
    # A link in the text of the stage leads to the picture.
    find(page, "#tab-decisions").click()
    link = find(page, "#pane-gpu .text a")
    page.execute_script("arguments[0].scrollIntoView()", link)
    link.click()
    assert find(page, "#layout canvas").get_attribute("data-layout") == link.text
    find(page, "#tab-memory").click()
    buttons = page.find_elements(By.CSS_SELECTOR, "#access-list button")
    (store,) = (button for button in buttons if button.text.startswith("store"))
    store.click()
    assert "no bank conflict" in find(page, "#banks .layout-title").text
    # 16 bytes a lane: eight lanes a pass, four banks each, every bank once.
    rows = page.find_elements(By.CSS_SELECTOR, "#banks .bank-row")
    hits = page.find_elements(By.CSS_SELECTOR, "#banks .hit")
    assert (len(rows), len(hits)) == (1 + 32, 32 * 4)
    assert not page.find_elements(By.CSS_SELECTOR, "#banks .conflict")


def test_the_page_is_dark_too(page):
    before = page.execute_script("return getComputedStyle(document.body).backgroundColor")
    find(page, "#theme").click()
    assert page.execute_script("return getComputedStyle(document.body).backgroundColor") != before


def test_buffers_and_barriers_of_a_gluon_kernel(chrome, tmp_path):  # noqa: F811
    example = ROOT / "examples" / "57_gluon_warp_specialize.py"
    path = tmp_path / "gluon.html"
    memory = ", ".join(
        f"tensordesc<fp16[64, {columns}], NVMMASharedLayout({swizzle}, 16, 2)>"
        for columns, swizzle in ((32, 64), (32, 64), (64, 128))
    )
    command = [sys.executable, "-m", "tilewright", "explain", f"{example}::matmul_kernel", "--tensor-maps"]
    made = subprocess.run(
        [*command, "-s", f"{memory},i32,3", "-o", str(path)], capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    chrome.get("about:blank")
    chrome.get(path.as_uri())
    lines = example.read_text().splitlines()

    def line_of(text):
        (found,) = (number for number, line in enumerate(lines, 1) if text in line)
        return found

    find(chrome, "#tab-barriers").click()
    assert (
        find(chrome, "#partitions").text
        == "Partitions: default: warps 0 to 3; worker 1: warp 4; idle: warps 5 to 7"
    )
    names = [part.get_attribute("data-name") for part in chrome.find_elements(By.CSS_SELECTOR, ".allocation")]
    assert names == ["a_smem", "b_smem", "full", "empty", "c_smem"]
    full = texts(chrome, '.allocation[data-name="full"] > *')
    assert full[1] == "3 × mbarrier, at byte 32768"
    assert (
        f"mbarrier_expect in line {line_of('mbarrier.expect(')} (worker 1), slot slot: 1 arrival, expects 8192 bytes"
        in full[2]
    )
    assert full[3].splitlines()[1:] == [
        f"mbarrier_wait in line {line_of('mbarrier.wait(full')} (default), slot slot"
    ]
    ring = texts(chrome, '.allocation[data-name="a_smem"] > *')
    assert ring[1].startswith("3 × fp16[64, 32], L")
    assert ring[2].splitlines()[1:] == [f"tensor_load in line {line_of('tma.async_load(a_desc')} (worker 1)"]
    # The name of a layout leads to its drawing.
    find(chrome, '.allocation[data-name="a_smem"] a').click()
    assert find(chrome, "#layout canvas").is_displayed()
    assert [entry for entry in chrome.get_log("browser") if entry["level"] == "SEVERE"] == []
