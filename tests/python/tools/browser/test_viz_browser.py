"""The page of the visualizer in a real browser: the traced programs of users are clicked through, and what is shown is
checked. ``TILEWRIGHT_BLESS=1`` writes the pictures of ``docs/visualizer.md``."""

from __future__ import annotations

import os
import queue
import re
import shutil
import subprocess
import sys
import threading
import time

import pytest
from conftest import PATIENCE, PROGRAMS

pytest.importorskip("torch")
webdriver = pytest.importorskip("selenium.webdriver")

from selenium.common.exceptions import SessionNotCreatedException  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from viz_page import MISPLACED, Page, contrast  # noqa: E402

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER),
    reason="there is no Chromium with its driver (apt-get install chromium chromium-driver)",
)
SIZE = (1280, 800)


@pytest.fixture(scope="module")
def chrome():
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    size = f"--window-size={SIZE[0]},{SIZE[1]}"
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", size):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for attempt in range(4):
        try:
            driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
            break
        except SessionNotCreatedException:
            # It gives a browser a minute to start, which on a busy machine is not enough.
            if attempt == 3:
                raise
    driver.set_page_load_timeout(PATIENCE)
    driver.set_script_timeout(PATIENCE)
    yield driver
    driver.quit()


@pytest.fixture
def page(chrome):
    """Runs a program to its end, and opens the page that it serves."""
    running = []

    def start(program, *, then="", options=()):
        code = f"import runpy; runpy.run_path({str(program)!r}, run_name='__main__')\n{then}"
        arguments = ["run", *options, *(["-c", code] if then else [str(program)])]
        environment = {**os.environ, "TILEWRIGHT_VIZ_WAIT": "1", "TILEWRIGHT_DEVICE": "cpu"}
        process = subprocess.Popen(
            [sys.executable, "-m", "tilewright", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        running.append(process)
        lines: queue.Queue[str | None] = queue.Queue()

        def read() -> None:
            for line in process.stderr:
                lines.put(line)
            lines.put(None)

        threading.Thread(target=read, daemon=True).start()
        # Its output is read as well, lest the program waits for a reader.
        out: list[str] = []
        threading.Thread(target=lambda: out.extend(process.stdout), daemon=True).start()
        url, said = None, []
        while True:
            line = lines.get(timeout=PATIENCE)
            assert line is not None, "".join(said)
            said.append(line)
            if match := re.search(r"http://127\.0\.0\.1:\d+/", line):
                url = match.group()
            if "until Ctrl-C" in line:
                break
        assert url is not None
        return Page(chrome, url), "".join(out)

    yield start
    errors = [entry for entry in chrome.get_log("browser") if entry["level"] == "SEVERE"]
    # A request that the page still makes is no error when its server goes.
    chrome.get("about:blank")
    for process in running:
        process.kill()
        process.wait()
    chrome.get_log("browser")
    assert not errors, errors


needs_programs = pytest.mark.skipif(not PROGRAMS.is_dir(), reason="the programs are not beside this checkout")


@needs_programs
def test_add_traced(page):
    shown, _ = page(PROGRAMS / "001_add_traced.py")
    assert shown.text("#kernel") == "add_kernel"
    assert "interpreted" in shown.text("#facts")
    assert shown.text("#grid-note").startswith("3 × 1 × 1: 3 programs")
    shown.wait_for("#chip-clean")
    assert [tab.text.split()[0] for tab in shown.all(".tab")] == ["x_ptr", "y_ptr", "output_ptr"]
    shown.click_op("load")
    assert shown.table("result") == ["1", "2", "3", "4"]
    # The last program: two of its lanes are masked.
    shown.press(Keys.SHIFT, Keys.ARROW_RIGHT)
    shown.press(Keys.SHIFT, Keys.ARROW_RIGHT)
    assert shown.text("#program-title") == "Program (2, 0, 0)"
    shown.click_op("store")
    assert "writes 2 of 4 lanes" in shown.text("#op-note")
    assert shown.table("mask") == ["1", "1", "0", "0"]
    assert shown.table("operand")[:2] == ["0", "11"]
    assert shown.all('#values [data-role="operand"] td.off')
    assert shown.find('.tab[aria-selected="true"]').text.startswith("output_ptr")
    assert "tl.store" in shown.text(".code .current .text")


@needs_programs
def test_add_2d_traced(page):
    shown, _ = page(PROGRAMS / "001_add_2d_traced.py")
    assert shown.text("#grid-note").startswith("4 × 3 × 1: 12 programs")
    assert "N0=100" in shown.text("#facts")
    assert "compiled for the CPU" in shown.text("#facts")
    shown.wait_for("#chip-clean")
    # A program by its place in the picture of the grid: the one in the last column of the first row.
    grid = shown.find("#grid")
    cell = shown.driver.execute_script("return arguments[0].clientWidth", grid) // 4 - 3
    move = webdriver.ActionChains(shown.driver)
    left = -grid.size["width"] // 2 + 2 + 3 * cell + cell // 2
    top = -grid.size["height"] // 2 + 2 + cell // 2
    shown.do(move.move_to_element_with_offset(grid, left, top).click().perform)
    assert shown.text("#program-title") == "Program (3, 0, 0)"
    shown.click_op("load", 1)
    # 100 columns: of 32, four are left.
    assert "reads 128 of 1 024 lanes" in shown.text("#op-note")
    assert shown.text("#tensor-note").startswith("128 elements")
    shown.click('#modes [data-value="accesses"]')
    assert "written" in shown.text("#legend") or "read" in shown.text("#legend")
    link = shown.driver.execute_script("return location.hash")
    assert "program=3" in link
    assert "mode=accesses" in link
    shown.open(link.removeprefix("#"))
    assert shown.text("#program-title") == "Program (3, 0, 0)"
    assert shown.find('#modes [aria-checked="true"]').text == "accesses"


@needs_programs
def test_dot_traced(page):
    shown, _ = page(PROGRAMS / "001_dot_traced.py")
    assert shown.text("#grid-note").startswith("4 × 2 × 1: 8 programs")
    shown.click_op("dot")
    assert shown.find("#dot").is_displayed()
    assert shown.text("#dot-step") == "k: 16 of 16"
    slider = shown.find('#dot input[type="range"]')
    shown.driver.execute_script(
        "arguments[0].value = 0; arguments[0].dispatchEvent(new Event('input'))", slider
    )
    assert shown.text("#dot-step") == "k: 0 of 16"
    assert shown.text("#dot-formula") == "C[0, 0] = 0 = 0"
    # The first element of the product, by what the page shows of a and b.
    rows, columns = shown.table("a"), shown.table("b")
    expected = sum(float(rows[k]) * float(columns[16 * k]) for k in range(16))
    assert float(shown.table("result")[0]) == expected
    shown.driver.execute_script(
        "arguments[0].value = 10; arguments[0].dispatchEvent(new Event('input'))", slider
    )
    assert shown.text("#dot-step") == "k: 10 of 16"
    partial = sum(float(rows[k]) * float(columns[16 * k]) for k in range(10))
    assert float(shown.text("#dot-formula").rpartition("=")[2]) == partial
    shown.picture("visualizer-dot")
    # The other iteration of the loop.
    assert "(1 of 2)" in shown.text("#loops")
    shown.press("]")
    assert "(2 of 2)" in shown.text("#loops")
    assert float(shown.table("acc")[0]) == expected
    shown.press("[")
    turn = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))"
    for iteration in (1, 0):
        loop = shown.find("#loops input[type=range]")
        shown.do(lambda loop=loop, to=iteration: shown.driver.execute_script(turn, loop, to))
        assert f"({iteration + 1} of 2)" in shown.text("#loops")
    # Played, the product runs through its steps. The page writes them down: it may be done before anybody looks.
    shown.click_op("dot")
    note = "window.steps = []; const step = arguments[0]; const note = () => window.steps.push(step.textContent);"
    watch = (
        "new MutationObserver(note).observe(step, { childList: true, characterData: true, subtree: true })"
    )
    shown.driver.execute_script(note + watch, shown.find("#dot-step"))
    shown.find('#dot button[title^="Play"]').click()
    steps: list[str] = []
    until = time.monotonic() + PATIENCE
    while len(steps) < 16 and time.monotonic() < until:
        steps = shown.driver.execute_script("return window.steps")
    assert steps == [f"k: {step} of 16" for step in range(1, 17)]
    # Eight programs with two iterations: the line of the product counts 16, and has a time.
    line = shown.find(".code .current")
    assert line.find_element(By.CSS_SELECTOR, ".count").text == "16×"
    assert re.fullmatch(r"[\d.]+ (ns|µs|ms)", line.find_element(By.CSS_SELECTOR, ".time").text)
    # Keys go through the ops, the line follows.
    assert "tl.dot" in shown.text(".code .current .text")
    shown.press(Keys.ARROW_LEFT)
    assert shown.text("#op-title") == "load"
    assert "y = tl.load" in shown.text(".code .current .text")
    before = len(shown.ops())
    shown.click("#indexing")
    assert len(shown.ops()) > before


@needs_programs
def test_swap_neighbours_traced(page):
    shown, _ = page(PROGRAMS / "001_swap_neighbours_traced.py")
    shown.click_op("load")
    assert shown.table("pointer") == ["1", "0", "3", "2"]
    assert shown.table("result") == ["11", "10", "13", "12"]
    shown.click_op("store")
    assert shown.table("pointer") == ["0", "1", "2", "3"]


@needs_programs
def test_dtypes_table(page):
    pytest.importorskip("tabulate")
    shown, _ = page(PROGRAMS / "001_dtypes_table.py", then="import triton_viz; triton_viz.launch()")
    assert "BLOCK_SIZE=16" in shown.text("#facts")
    shown.click_op("store")
    assert "writes 10 of 16 lanes" in shown.text("#op-note")
    assert shown.text("#tensor-note").startswith("10 elements")


FINDINGS = """
import torch, triton, triton.language as tl, triton_viz

@triton_viz.trace
@triton.jit
def windows(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offsets = pid * (BLOCK - 2) + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.exp(x) + tl.sum(x), mask=mask)

@triton_viz.trace
@triton.jit
def scale(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)
    tl.store(out_ptr + offsets, 2 * x, mask=offsets < n)

@triton_viz.trace
@triton.jit
def planes(x_ptr, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.atomic_add(x_ptr + tl.program_id(0) * B * B + i[:, None] * B + i[None, :], 1.0)

torch.manual_seed(0)
x, out = torch.randn(60), torch.zeros(60)
windows[(5,)](x, out, 60, BLOCK=16)
try:
    scale[(4,)](x, out, 60, BLOCK=16)
except triton.TritonError:
    pass
planes[(3,)](torch.zeros(3, 8, 8), B=8)
triton_viz.launch()
"""


def test_findings(page, tmp_path):
    program = tmp_path / "findings.py"
    program.write_text(FINDINGS)
    shown, _ = page(program)
    # Two programs write each element where windows overlap.
    chip = shown.wait_for("#chip-races")
    assert chip.text == "races for 8 elements"
    shown.do(chip.click)
    assert shown.find('.tab[aria-selected="true"]').text.startswith("out_ptr")
    assert "race" in shown.text("#legend")
    shown.click_op("store")
    shown.do(lambda: shown.find("body").send_keys("r"))
    shown.picture("visualizer-races")
    # The element: the last one of the first row, 14.
    canvas = shown.find("#tensor")
    point = "const r = arguments[0].getBoundingClientRect();"
    fire = "arguments[0].dispatchEvent(new MouseEvent('click', {clientX: r.x + 40 + 14.5 * c, clientY: r.y + 25}))"
    width = "const c = (arguments[0].clientWidth - 43) / 16;"
    shown.driver.execute_script(point + width + fire, canvas)
    who = shown.wait_for("#who:not([hidden]) li").find_element(By.XPATH, "../..")
    assert "out_ptr[14]" in who.text
    assert "A race" in who.text
    assert [re.search(r"program \((\d)", item.text).group(1) for item in shown.all("#who li")] == ["0", "1"]
    shown.do(shown.all("#who li button")[1].click)
    assert shown.text("#program-title") == "Program (1, 0, 0)"

    # Out of bounds: the failing program and the lanes that are outside.
    select = shown.find("#launches")
    shown.do(lambda: select.find_elements(By.TAG_NAME, "option")[1].click())
    # The failure is a finding: its text, and a mark at the line.
    assert "error[TW0201]" in shown.text("#finding-text")
    assert [mark.find_element(By.XPATH, "../..").text for mark in shown.all(".mark-bad")] == [
        shown.text(".code .current")
    ]
    assert shown.find("#grid").get_attribute("data-marked") == "3"
    assert shown.text("#program-title") == "Program (3, 0, 0)"
    assert shown.text("#out-note").strip() == "4 out of bounds"
    assert len(shown.all('#values [data-role="pointer"] td.out')) == 4
    assert shown.wait_for("#chip-out").text == "4 lanes out of bounds"
    shown.picture("visualizer-out-of-bounds")

    # Planes of a tensor of three axes, and the elements after the launch.
    shown.do(lambda: select.find_elements(By.TAG_NAME, "option")[2].click())
    slider = shown.find("#plane input")
    assert slider.get_attribute("max") == "2"
    shown.press("v")
    # The result of an atomic operation is seen afterwards.
    assert shown.find('#phases [aria-checked="true"]').text == "after"
    shown.press("b")
    assert shown.find('#phases [aria-checked="true"]').text == "before"
    shown.wait_for("#chip-clean")


BUGGY = """
import ctypes, torch, triton, triton.language as tl, triton_viz

@triton_viz.trace
@triton.jit
def accumulate(x_ptr, acc_ptr, BLOCK: tl.constexpr):
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x_ptr + lanes))
    seen = tl.load(acc_ptr)
    tl.store(acc_ptr, seen + total)

@triton_viz.trace
@triton.jit
def blur(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    first = tl.program_id(0) * (BLOCK - 2)
    lanes = first + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + lanes, mask=lanes < n, other=0.0)
    tl.store(out_ptr + lanes, x / 2 + tl.program_id(0), mask=lanes < n)

@triton_viz.trace
@triton.jit
def scale(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + lanes)
    y = tl.load(y_ptr + lanes)
    tl.store(out_ptr + lanes, x / y)

torch.manual_seed(0)
accumulate[(4,)](torch.rand(64), torch.zeros(1), BLOCK=16)
x = torch.rand(72)
blur[(5,)](x, torch.zeros(72), 72, BLOCK=16)
y = torch.empty(64)
y[:37] = torch.randn(37)
y[40:] = 0
x[40] = 0
# The unwritten elements are finite.
ctypes.memset(y.data_ptr() + 4 * 37, 0x3F, 12)
scale[(4,)](x, y, torch.zeros(64), BLOCK=16)
try:
    scale[(5,)](x, torch.ones(72), torch.zeros(72), BLOCK=16)
except triton.TritonError:
    pass
triton_viz.launch()
"""


def launch_number(shown, number):
    options = shown.find("#launches").find_elements(By.TAG_NAME, "option")
    shown.do(options[number].click)
    shown.wait_for(f'#launches option[value="{number}"]:checked')


def test_what_the_sanitizer_finds_is_marked(page, tmp_path):
    program = tmp_path / "buggy.py"
    program.write_text(BUGGY)
    shown, _ = page(program, options=["--sanitize"])
    options = shown.find("#launches").find_elements(By.TAG_NAME, "option")
    assert [option.text.partition("] ")[2] for option in options] == ["● 2", "● 1", "● 2", "✗"]

    # A race for an accumulator: both lines, all programs, the one element; first of all the second program.
    shown.wait_for("#findings:not([hidden])")
    assert shown.text("#chip-findings") == "2 findings"
    assert "two programs race for `acc_ptr[0]`" in shown.text("#finding-text")
    assert "program (0, 0, 0) wrote it here" in shown.text("#finding-text")
    marked = [mark.find_element(By.XPATH, "../..").text for mark in shown.all(".code .mark-bad")]
    assert len(marked) == 2
    assert "seen = tl.load(acc_ptr)" in marked[0]
    assert "tl.store(acc_ptr, seen + total)" in marked[1]
    assert shown.find("#grid").get_attribute("data-marked") == "0,1,2,3"
    assert shown.find("#grid").get_attribute("data-shown") == "0,1"
    assert shown.text("#program-title") == "Program (1, 0, 0)"
    assert shown.find('.tab[aria-selected="true"]').text.startswith("acc_ptr")
    assert shown.find("#tensor").get_attribute("data-marked") == "0"
    assert "seen = tl.load" in shown.text(".code .current .text")
    # The other side of the race.
    programs = shown.all("#finding-programs button")
    assert [button.text for button in programs] == [
        f"program (1, 0, 0), line {shown.find('.code .current').get_attribute('data-line')}",
        f"program (0, 0, 0), line {int(shown.find('.code .current').get_attribute('data-line')) + 1}",
    ]
    shown.do(programs[1].click)
    assert shown.text("#program-title") == "Program (0, 0, 0)"
    assert shown.text("#op-title") == "store"
    assert "tl.store(acc_ptr" in shown.text(".code .current .text")
    link = shown.driver.execute_script("return location.hash")
    assert "finding=0" in link

    # Overlapping stores: each element that two programs write, one occurrence after the other.
    launch_number(shown, 1)
    assert shown.find("#tensor").get_attribute("data-marked") == "14,15,28,29,42,43,56,57"
    assert shown.find("#grid").get_attribute("data-marked") == "0,1,2,3,4"
    assert "finding" in shown.text("#legend")
    shown.picture("visualizer-findings")
    slider = shown.find("#finding-turn input")
    assert slider.get_attribute("max") == "7"
    last = "arguments[0].value = 7; arguments[0].dispatchEvent(new Event('input'))"
    shown.do(lambda: shown.driver.execute_script(last, slider))
    assert shown.find("#grid").get_attribute("data-shown") == "3,4"
    assert shown.text("#program-title") == "Program (4, 0, 0)"

    # Two findings in one kernel: unwritten memory, and the op where NaN begins.
    launch_number(shown, 2)
    assert shown.text("#chip-findings") == "2 findings"
    items = shown.all("#finding-list button")
    kinds = [item.find_element(By.CSS_SELECTOR, ".badge").text for item in items]
    assert sorted(kinds) == ["NaN", "unwritten"]
    shown.do(items[kinds.index("unwritten")].click)
    assert "y_ptr[37]" in shown.text("#finding-text")
    assert shown.find('.tab[aria-selected="true"]').text.startswith("y_ptr")
    assert shown.find("#tensor").get_attribute("data-marked") == "37,38,39"
    assert shown.text("#program-title") == "Program (2, 0, 0)"
    assert "y = tl.load(y_ptr" in shown.text(".code .current .text")
    shown.press("f")
    assert shown.find('#finding-list button[aria-pressed="true"] .badge').text == "NaN"
    assert "x / y" in shown.text(".code .current .text")
    # The element of the tile: 40 is the eighth of the third program.
    assert [cell.get_attribute("data-lane") for cell in shown.all("#values td.found")] == ["8"]
    # A mark at a line leads to its finding; Esc closes the list, the chip opens it.
    shown.do(shown.all(".code .mark-bad")[0].click)
    assert shown.find('#finding-list button[aria-pressed="true"] .badge').text == "unwritten"
    shown.press(Keys.ESCAPE)
    assert not shown.find("#findings").is_displayed()
    shown.click("#chip-findings")
    assert shown.find("#findings").is_displayed()

    # Out of bounds: the launch ends; the lanes are marks outside of the tensor.
    launch_number(shown, 3)
    assert "error[TW0201]" in shown.text("#finding-text")
    assert shown.find("#finding-list .badge").text == "out of bounds"
    assert shown.text("#program-title") == "Program (4, 0, 0)"
    assert shown.text("#out-note").strip() == "8 out of bounds"
    assert "out of bounds" in shown.text("#legend")

    # The link of before leads to the finding, the program and the op.
    shown.open(link.removeprefix("#"))
    assert shown.text("#program-title") == "Program (0, 0, 0)"
    assert "two programs race" in shown.text("#finding-text")
    assert shown.text("#op-title") == "store"


def test_a_client_has_launches_sanitized(page, tmp_path):
    program = tmp_path / "buggy.py"
    program.write_text(
        BUGGY.replace("@triton_viz.trace", "@triton_viz.trace(clients=triton_viz.Sanitizer())")
    )
    shown, _ = page(program)
    assert "two programs race for `acc_ptr[0]`" in shown.text("#finding-text")
    assert shown.find("#tensor").get_attribute("data-marked") == "0"


def test_look_and_exports(page, tmp_path):
    program = tmp_path / "findings.py"
    program.write_text(FINDINGS)
    shown, _ = page(program)
    theme = "return document.documentElement.dataset.theme"
    colors = "return getComputedStyle(document.body).backgroundColor"
    first, color = shown.driver.execute_script(theme), shown.driver.execute_script(colors)
    shown.press("d")
    assert shown.driver.execute_script(theme) != first
    assert shown.driver.execute_script(colors) != color
    if shown.driver.execute_script(theme) != "dark":
        shown.press("d")
    shown.picture("visualizer-dark")
    shown.press("d")
    shown.find("body").send_keys("?")
    assert shown.find("#keys").is_displayed()
    shown.find("body").send_keys(Keys.ESCAPE)
    folder = tmp_path / "downloads"
    folder.mkdir()
    behavior = {"behavior": "allow", "downloadPath": str(folder)}
    shown.driver.execute_cdp_cmd("Browser.setDownloadBehavior", behavior)
    shown.find("#export-svg").click()
    shown.find("#export-png").click()
    until = time.monotonic() + PATIENCE
    while {path.suffix for path in folder.iterdir()} != {".png", ".svg"}:
        assert time.monotonic() < until, list(folder.iterdir())
        time.sleep(0.05)
    svg = next(folder.glob("*.svg")).read_text()
    assert svg.startswith("<svg")
    assert svg.endswith("</svg>")
    assert svg.count("<rect") > 60
    assert next(folder.glob("*.png")).read_bytes().startswith(b"\x89PNG")
    # Nothing is asked of another machine.
    entries = shown.driver.execute_script("return performance.getEntries().map(entry => entry.name)")
    assert not [name for name in entries if name.startswith("http") and not name.startswith(shown.url)]


WINDOWS = """
import torch, triton, triton.language as tl, triton_viz

@triton_viz.trace
@triton.jit
def windows(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * (BLOCK - 2) + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)

x = torch.rand(240)
windows[(16,)](x, torch.zeros(240), 226, BLOCK=16)
triton_viz.launch()
"""


def test_accesses_are_colored_by_program(page, tmp_path):
    program = tmp_path / "windows.py"
    program.write_text(WINDOWS)
    shown, _ = page(program)
    shown.driver.execute_script("document.documentElement.dataset.theme = 'light'")

    def pixel(canvas, x, y):
        """The color of a canvas at a point, by its own coordinates."""
        read = (
            "const [canvas, x, y] = arguments, ratio = canvas.width / canvas.clientWidth;"
            "return [...canvas.getContext('2d').getImageData(x * ratio, y * ratio, 1, 1).data].slice(0, 3)"
        )
        return shown.driver.execute_script(read, shown.find(canvas), x, y)

    def element(number, part):
        cell = shown.driver.execute_script(
            "return (arguments[0].clientWidth - 43) / 16", shown.find("#tensor")
        )
        return pixel("#tensor", 40 + (number % 16 + part) * cell, 20 + (number // 16 + 0.5) * cell)

    def color(css):
        return [int(part) for part in re.findall(r"\d+", css)[:3]]

    def look():
        """The colors of the programs in the legend, after a look at those of the elements."""
        style = "return getComputedStyle(arguments[0]).backgroundColor"
        swatches = shown.all("#legend .of-programs i")[:12]
        colors = [color(shown.driver.execute_script(style, swatch)) for swatch in swatches]
        # An element of one program has its color, one of two programs has both.
        for number in (0, 1, 5, 11):
            assert element(14 * number + 5, 0.4) == colors[number]
        assert [element(28, part) for part in (0.25, 0.75)] == colors[1:3]
        # 226 elements are accessed.
        assert element(230, 0.5) == color_of("--cell")
        # The grid has the color of each program, also of those that the legend does not name.
        assert pixel("#grid", 2 + 4, 2 + 4) == colors[0]
        # The colors differ from each other and from the panel.
        for number, one in enumerate(colors):
            assert contrast(one, color_of("--panel")) >= 3
            others = colors[number + 1 :]
            assert all(sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) > 900 for other in others)
        return colors

    def color_of(variable):
        probe = (
            "const probe = document.body.appendChild(document.createElement('i'));"
            "probe.style.color = `var(${arguments[0]})`;"
            "const found = getComputedStyle(probe).color; probe.remove(); return found"
        )
        return color(shown.driver.execute_script(probe, variable))

    shown.press("p")
    assert shown.find('#modes [aria-checked="true"]').text == "programs"
    assert shown.text("#grid-note").endswith("by program")
    named = [entry.text for entry in shown.all("#legend .of-programs")]
    assert named == [*(f"({number}, 0, 0)" for number in range(12)), "several programs"]
    assert "and 4 more, as in the grid" in shown.text("#legend")
    light = look()
    shown.picture("visualizer-programs")
    shown.press("d")
    assert shown.driver.execute_script("return document.documentElement.dataset.theme") == "dark"
    assert look() != light
    shown.press("d")
    link = shown.driver.execute_script("return location.hash")
    assert "mode=programs" in link
    shown.press("v")
    assert shown.text("#grid-note").endswith("by time")


def test_a_page_that_is_one_file(page, tmp_path):
    file = tmp_path / "page.html"
    program = tmp_path / "findings.py"
    program.write_text(
        FINDINGS.replace("triton_viz.launch", f"triton_viz.save_html({str(file)!r})\ntriton_viz.launch")
    )
    shown, _ = page(program)

    def look(url):
        """Everything that is shown at some links, and after a click at an element."""
        seen = []
        shown.url = url
        for link in (
            "",
            "launch=0&program=3&mode=programs&tensor=1",
            "launch=0&mode=races&tensor=1",
            "launch=1",
            "launch=1&program=0&tensor=1&mode=accesses",
            "launch=2&program=2&mode=values&after=1&plane=2",
        ):
            shown.open(link)
            pictures = [
                shown.driver.execute_script("return arguments[0].toDataURL()", shown.find(canvas))
                for canvas in ("#grid", "#tensor")
            ]
            text = shown.text("body")
            middle = "const box = arguments[0].getBoundingClientRect();"
            # The second is in the last row of a tensor, which the failed launch has not written.
            for down in ("30", "20 + (box.height - 23) * 0.9") if "tensor=1" in link else ("30",):
                at = f"{{clientX: box.x + box.width * 0.2, clientY: box.y + {down}}}"
                click = f"{middle} arguments[0].dispatchEvent(new MouseEvent('click', {at}))"
                shown.driver.execute_script(
                    f"document.getElementById('who').textContent = ''; {click}", shown.find("#tensor")
                )
                shown.wait_for("#who h3")
                text += shown.text("#who")
            seen.append((link, text, pictures))
        shown.find("body").send_keys("l")
        shown.wait_for('body[data-layouts="2:90"]')
        return [*seen, shown.text("#layouts")]

    served = look(shown.url)
    # A file has no server: it may not ask for anything.
    assert look(file.as_uri()) == served
    assert "windows" in served[0][1]
    assert "no accesses" in served[4][1]
    requests = "return performance.getEntriesByType('resource').map((entry) => entry.name.slice(0, 5))"
    assert set(shown.driver.execute_script(requests)) <= {"data:"}


@pytest.mark.parametrize("size", [(1024, 640), (420, 800)], ids="{0[0]}x{0[1]}".format)
def test_a_small_window_shows_everything(page, tmp_path, size):
    program = tmp_path / "findings.py"
    long = "a_kernel_whose_name_is_rather_long_for_the_width_of_a_small_window"
    program.write_text(FINDINGS.replace("windows", long))
    shown, _ = page(program)
    metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False}
    shown.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        for link in ("mode=programs&tensor=1", "event=8", "launch=1&event=3", "launch=2&plane=1"):
            shown.open(f"{link}&after=1")
            assert shown.driver.execute_script(MISPLACED) == [], link
            # The picture of the tensor is as wide as there is room, not a strip.
            widths = "return ['#tensor', '.canvas-box'].map((one) => document.querySelector(one).clientWidth)"
            width, room = shown.driver.execute_script(widths)
            assert min(300, room / 2) < width <= room
            # The page begins at its top, and the ops at the selected one.
            assert shown.driver.execute_script("return scrollY") == 0
            op, ops = shown.find(".event.current").rect, shown.find("#timeline").rect
            assert ops["x"] <= op["x"] < op["x"] + op["width"] <= ops["x"] + ops["width"]
        shown.find("#help").click()
        assert shown.driver.execute_script(MISPLACED) == [], "keys"
        shown.find("body").send_keys(Keys.ESCAPE)
        shown.find("#show-layouts").click()
        shown.wait_for('body[data-layouts="2:90"]')
        assert shown.driver.execute_script(MISPLACED) == [], "layouts"
    finally:
        shown.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


PRODUCT = """
import numpy as np
import triton
import triton.language as tl
import triton_viz


@triton_viz.trace
@triton.jit
def product(a, b, c, N: tl.constexpr):
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at)))


a, b, c = (np.ones((64, 64), np.float16) for _ in range(3))
product[(1,)](a, b, c, 64)
triton_viz.launch()
"""


def test_layouts_on_a_gpu(page, tmp_path):
    program = tmp_path / "product.py"
    program.write_text(PRODUCT)
    shown, _ = page(program)
    shown.find("body").send_keys("l")
    shown.wait_for('body[data-layouts="0:90"]')
    note = shown.text("#layout-note")
    assert note.endswith("4 warps")
    # The accumulator of wgmma, and the buffers that it reads.
    entries = [entry.text for entry in shown.all("#layout-list button")]
    assert any("shared memory" in entry for entry in entries)
    buttons = shown.all("#layout-list button[data-layout]")
    for button in buttons[-2:]:
        button.click()
        assert shown.find("#layout canvas").get_attribute("data-layout") == button.get_attribute(
            "data-layout"
        )
    shown.picture("visualizer-layouts")
    shown.find('#layout-target option[value="80"]').click()
    shown.wait_for('body[data-layouts="0:80"]')
    accesses = shown.all("#layout-list button[data-access]")
    assert accesses
    accesses[-1].click()
    assert "bank conflict" in shown.text("#layout .layout-title")


@needs_programs
def test_an_interpreted_kernel_has_no_layouts(page):
    shown, _ = page(PROGRAMS / "001_add_traced.py")
    shown.find("#show-layouts").click()
    shown.wait_for('body[data-layouts="0:90"]')
    assert "interpreted" in shown.text("#layout-note")
