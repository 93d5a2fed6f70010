"""The page of the visualizer in a browser, as a user works with it, and checks of its look."""

from __future__ import annotations

import os
import time

from conftest import PATIENCE, ROOT
from selenium.webdriver.common.by import By

PICTURES = ROOT / "docs" / "images"


class Page:
    """The page of a trace, as a user works with it."""

    def __init__(self, driver, url):
        self.driver = driver
        self.url = url
        self.open("")

    def open(self, address):
        """Follows a link."""
        self.driver.get("about:blank")
        self.driver.get(f"{self.url}#{address}")
        self.settle(0)

    def settle(self, before):
        """Waits until what was selected is shown, and what programs share of the launch."""
        until = time.monotonic() + PATIENCE
        shown = "const page = document.body.dataset; return 'checked' in page ? Number(page.ready || 0) : 0"
        while time.monotonic() < until:
            if self.driver.execute_script(shown) > before:
                return
            time.sleep(0.02)
        raise AssertionError("the page did not show what was selected")

    def do(self, action):
        """Does something that selects, and waits for the page."""
        before = self.driver.execute_script("return Number(document.body.dataset.ready || 0)")
        action()
        self.settle(before)

    def find(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector):
        return self.find(selector).text

    def click(self, selector):
        self.do(self.find(selector).click)

    def press(self, *keys):
        self.do(lambda: self.find("body").send_keys(*keys))

    def ops(self):
        """The names of the ops on the timeline."""
        return [element.text.splitlines()[0] for element in self.all(".event")]

    def click_op(self, name, number=0):
        found = [element for element in self.all(".event") if element.text.splitlines()[0] == name]
        self.do(found[number].click)

    def table(self, role):
        """The cells of a value of the op, as text."""
        return [cell.text for cell in self.all(f'#values [data-role="{role}"] td')]

    def wait_for(self, selector):
        until = time.monotonic() + PATIENCE
        while not self.all(selector):
            assert time.monotonic() < until, f"there is no {selector}"
            time.sleep(0.05)
        return self.find(selector)

    def picture(self, name):
        if os.environ.get("TILEWRIGHT_BLESS"):
            PICTURES.mkdir(exist_ok=True)
            self.driver.save_screenshot(str(PICTURES / f"{name}.png"))


def contrast(first, second):
    """The ratio of luminances as WCAG defines it."""

    def luminance(color):
        parts = [part / 255 for part in color]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


MISPLACED = """
const problems = [], page = document.documentElement;
const name = (one) => `${one.tagName} ${one.id} ${one.className}`;
const boxOf = (one) => one.getBoundingClientRect();
const isVisible = (one) => boxOf(one).width > 0 && boxOf(one).height > 0 && one.tagName !== "OPTION";
const isInFlow = (one) => ["static", "relative"].includes(getComputedStyle(one).position);
const isBox = (one) => isVisible(one) && isInFlow(one) && !isInline(one);
const isInline = (one) => getComputedStyle(one).display === "inline";
const overflow = (one) => getComputedStyle(one).overflowX;
const isTooSmall = (one) => one.scrollWidth > one.clientWidth + 1 || one.scrollHeight > one.clientHeight + 1;
const common = (a, b, [low, high]) => Math.min(a[high], b[high]) - Math.max(a[low], b[low]);
const isWithin = (a, b, [low, high]) => a[low] >= b[low] - 1 && a[high] <= b[high] + 1;
const axes = [["left", "right"], ["top", "bottom"]];
if (page.scrollWidth > page.clientWidth) problems.push(`the page scrolls sideways to ${page.scrollWidth}`);
for (const one of document.querySelectorAll("body *")) {
  if (!isVisible(one)) continue;
  const box = boxOf(one), parent = one.parentElement;
  if (["hidden", "clip"].includes(overflow(one)) && isTooSmall(one)) problems.push(`${name(one)} cuts off`);
  if (!isBox(one) || !isVisible(parent)) continue;
  const isBounded = overflow(parent) === "visible" && !isInline(parent);
  if (isBounded && !axes.every((axis) => isWithin(box, boxOf(parent), axis)))
    problems.push(`${name(one)} is out of ${name(parent)}`);
  for (let other = one.nextElementSibling; other; other = other.nextElementSibling) {
    if (isBox(other) && axes.every((axis) => common(box, boxOf(other), axis) > 1))
      problems.push(`${name(one)} overlaps ${name(other)}`);
  }
}
return problems;
"""
"""Lists what a window cuts off or draws over something else; an element that scrolls cuts nothing off."""
