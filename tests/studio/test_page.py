"""The page in a browser: every tab is used, hostile text is typed, and nothing is asked of other servers."""

import shutil
from importlib.util import find_spec

import pytest

from helpers.studio_server import running_studio

CHROMIUM = shutil.which("chromium")
HOSTILE = (
    "<img src=x onerror='window.hit=1'><script>window.hit=1</script>${window.hit=1}"
    "{{constructor.constructor('window.hit=1')()}}<iframe srcdoc='<script>parent.hit=1</script>'></iframe>"
)
SECONDS = 60_000

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("gradio") is None, reason="no Gradio here: pip install .[studio]"),
    pytest.mark.skipif(
        find_spec("playwright") is None or CHROMIUM is None,
        reason="no browser here: pip install playwright, and Debian's package chromium (apt-get install chromium)",
    ),
]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with running_studio(tmp_path_factory.mktemp("studio")) as found:
        yield found


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Without Chromium's own sandbox, which needs rights that containers do not give.
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def page(browser, address):
    """The page as it is opened; afterwards: no error in its console, nothing asked of another server."""
    opened = browser.new_page(viewport={"width": 1280, "height": 900})
    opened.set_default_timeout(SECONDS)
    asked, problems = [], []
    opened.on("request", lambda request: asked.append(request.url))
    opened.on("pageerror", lambda problem: problems.append(str(problem)))
    opened.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
    opened.goto(address)
    opened.wait_for_selector("#probed .bars")
    yield opened
    assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []
    assert problems == [] and opened.evaluate("window.hit") is None
    opened.close()


def choose(page, label, option):
    page.get_by_label(label, exact=True).click()
    page.get_by_role("option", name=option, exact=True).last.click()


def set_slider(page, name, value):
    box = page.locator(f"#{name} input[type=number]")
    box.fill(str(value))
    box.press("Enter")


def wait_for_text(page, place, text):
    page.wait_for_function(
        "([place, text]) => document.querySelector(place)?.innerText.includes(text)", arg=[place, text]
    )


def toast(page, text):
    page.locator(".toast-body").filter(has_text=text).wait_for()


def open_question(page):
    page.get_by_role("button", name="Question and context").click()


def test_a_question_is_slid_typed_and_asked_of_a_second_model(page):
    wait_for_text(page, "#probed", "of the largest")  # the attribution is there
    page.wait_for_function("document.querySelectorAll('#probed .bars').length == 2")
    page.wait_for_function("document.querySelectorAll('#probed polyline[points*=\"200,\"]').length == 2")
    plot = page.locator("#probed .plot").bounding_box()
    for place in (".dot.c0", ".dot.c1"):  # the mark is at 150 of 200
        box = page.locator(f"#probed {place}").bounding_box()
        assert abs(box["x"] + box["width"] / 2 - plot["x"] - 0.75 * plot["width"]) < 2
    open_question(page)
    page.locator("#context textarea").fill("The sky is blue.")
    page.locator("#question textarea").fill("The sky is")
    page.locator("#answer textarea, #answer input").first.fill(" blue")
    wait_for_text(page, "#probed", "The right answer blue has")
    page.locator("#question textarea").fill("")
    wait_for_text(page, "#probed", "the question is empty")


def test_the_first_visit_shows_the_question_before_a_model_answers(browser, address):
    opened = browser.new_page()
    opened.goto(address, wait_until="commit")
    opened.wait_for_function("getComputedStyle(document.querySelector('gradio-app'), '::before').content.includes('░')")
    opened.wait_for_selector("#probed .prompt")
    assert "Answer:[" in opened.locator("#probed .prompt").inner_text()
    opened.wait_for_selector("#probed .bars")
    assert opened.evaluate("getComputedStyle(document.querySelector('gradio-app'), '::before').content") == "none"
    opened.close()


def test_a_finished_example_is_there_and_played_pass_by_pass(page):
    page.get_by_role("tab", name="Decode").click()
    wait_for_text(page, "#left", "32 of 32 forward passes")
    assert "32 of 32 tokens" in page.locator("#right").inner_text()
    set_slider(page, "step", 3)
    wait_for_text(page, "#left", "3 of 32 forward passes, 3 of 32 tokens")
    assert page.locator("#left .token.new").count() == 1 and page.locator("#left .mask").count() == 29
    page.get_by_role("button", name="Play").click()
    wait_for_text(page, "#left", "6 of 32 forward passes")
    page.get_by_role("button", name="Pause").click()
    page.wait_for_timeout(1500)
    stands = page.locator("#left").inner_text()
    page.wait_for_timeout(1500)
    assert page.locator("#left").inner_text() == stands


def test_results_are_above_the_fold_next_to_the_settings(page):
    page.get_by_role("tab", name="Decode").click()
    settings = page.locator("#prompt").bounding_box()
    for shown in ("#left .canvas", "#right .canvas", "#step"):
        box = page.locator(shown).bounding_box()
        assert box["x"] > settings["x"] + settings["width"] and box["y"] + box["height"] <= 900


def test_a_wrong_setting_is_a_toast_that_keeps_the_results(page):
    page.get_by_role("tab", name="Decode").click()
    wait_for_text(page, "#left", "32 of 32 forward passes")
    settings = page.get_by_label("Settings").last
    settings.fill("rule=bets")  # no beginning of a listed one, which Enter would choose
    settings.press("Enter")
    page.get_by_role("button", name="Decode").click()
    toast(page, "bets")
    assert "32 of 32 forward passes" in page.locator("#left").inner_text()


def test_hostile_text_stays_text(page):
    open_question(page)
    page.locator("#context textarea").fill(HOSTILE)
    page.locator("#question textarea").fill(HOSTILE)
    wait_for_text(page, "#probed .prompt", "window.hit=1")
    page.get_by_role("tab", name="Decode").click()
    page.locator("#prompt textarea").fill(HOSTILE)
    page.get_by_role("button", name="Decode").click()
    wait_for_text(page, "#right .canvas", "<img src=x onerror='window.hit=1'>")
    assert page.locator("#probed img, #probed script, #right img, #right iframe").count() == 0


def test_a_narrow_screen_is_not_scrolled_sideways(page):
    page.set_viewport_size({"width": 390, "height": 844})
    choose(page, "Compare with", "tiny-dream")
    page.wait_for_function("document.querySelectorAll('#probed .bars').length == 2")
    for tab in ("Probe", "Decode"):
        page.get_by_role("tab", name=tab).click()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
