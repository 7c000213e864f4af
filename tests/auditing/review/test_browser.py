"""The page in a real browser, found by roles and names as a screen reader finds them.

`make test-browser` runs these; they are skipped, with the reason, where there is no chromium.
"""

from __future__ import annotations

import os
import re
import shutil
import time

import pandas as pd
import pytest

from noisegate.auditing import stored
from noisegate.auditing.apply import apply
from noisegate.auditing.decisions import Decisions
from noisegate.auditing.report import write_report

pytestmark = pytest.mark.browser

NAMES = (os.environ.get("CHROMIUM", "chromium"), "chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((path for path in map(shutil.which, NAMES) if path), None)
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def browser():
    api = pytest.importorskip(
        "playwright.sync_api", reason="the browser tests need playwright: pip install playwright"
    )
    if CHROMIUM is None:
        pytest.skip("the browser tests need chromium: apt-get install chromium, or CHROMIUM=/path/to/it")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser):
    """Open an address in a browser of one's own; errors of the page fail the test."""
    contexts, errors = [], []

    def open_(address, **options):
        context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
        context.set_default_timeout(15_000)
        contexts.append(context)
        return tab(context, address)

    def tab(context, address):
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on(
            "console",
            lambda message: errors.append(message.text) if "Content Security" in message.text else None,
        )
        page.goto(address)
        shown(page).wait_for()
        return page

    open_.tab = tab
    yield open_
    for context in contexts:
        context.close()
    assert errors == []


def row(page):
    return page.get_by_role("heading", level=2, name=re.compile("^(Row |File |That was|No row)"))


def name_of(page):
    return row(page).inner_text().removeprefix("Row ").removeprefix("File ")


def shown(page):
    """The row or the first card of the grid, once there is one."""
    return row(page).or_(page.get_by_role("listbox", name="Rows of this filter").get_by_role("option").first)


def reload(page):
    page.reload()
    shown(page).wait_for()


def wait_for(condition, seconds=15):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "this did not happen in time"
        time.sleep(0.05)


def press(page, key):
    """Press a key and wait until another row is shown."""
    before = name_of(page)
    page.keyboard.press(key)
    wait_for(lambda: name_of(page) != before)


def decided(folder):
    log = Decisions(folder / "decisions.sqlite", stored.read(folder).audit_id)
    try:
        return {d.row: (d.decision, d.label, d.reviewer) for d in log.last()}
    finally:
        log.close()


def ranked(folder, flag="is_label_issue"):
    rows = stored.read(folder).rows
    return rows[rows[flag]].reset_index(drop=True)


def test_open_decide_by_keys_undo_reload(table_audit, serve, visit):
    folder, _ = table_audit(120)
    page = visit(serve(folder).address)
    rows = ranked(folder)
    assert "token" not in page.url
    page.get_by_role("heading", name="Keys").wait_for()  # the legend is visible at first
    assert name_of(page) == rows["id"][0]
    for key in ("Enter", " ", "s", "3"):
        press(page, key)
    assert name_of(page) == rows["id"][4]
    expected = {
        int(rows["row"][0]): ("accept", int(rows["suggested_label"][0]), "ana"),
        int(rows["row"][1]): ("keep", int(rows["given_label"][1]), "ana"),
        int(rows["row"][2]): ("skip", -1, "ana"),
        int(rows["row"][3]): ("choose", 2, "ana"),
    }
    wait_for(lambda: decided(folder) == expected)
    page.get_by_text("3 decided").wait_for()
    reload(page)
    wait_for(lambda: name_of(page) == rows["id"][4])
    for place in (3, 2):
        page.keyboard.press("u" if place == 3 else "Control+z")
        wait_for(lambda place=place: name_of(page) == rows["id"][place])
    wait_for(lambda: len(decided(folder)) == 2)
    reload(page)
    page.keyboard.press("Shift+U")
    wait_for(lambda: len(decided(folder)) == 3)
    page.get_by_role("button", name="Undo").click()
    wait_for(lambda: len(decided(folder)) == 2)
    page.get_by_role("combobox", name="Decision").select_option("decided")
    page.get_by_text(re.compile("^Decided: .* by ana")).wait_for()


def test_arrows_move_letters_choose_and_the_legend_hides(table_audit, serve, visit):
    names = tuple(f"class {i}" for i in range(12))
    folder, _ = table_audit(200, classes=names)
    page = visit(serve(folder).address)
    rows = ranked(folder)
    for place, key in (
        (1, "ArrowDown"),
        (2, "ArrowRight"),
        (1, "ArrowUp"),
        (0, "ArrowLeft"),
        (1, "j"),
        (0, "k"),
    ):
        press(page, key)
        assert name_of(page) == rows["id"][place]
    legend = page.get_by_role("heading", name="Keys")
    assert legend.is_visible()
    page.keyboard.press("?")
    legend.wait_for(state="hidden")
    reload(page)
    assert not legend.is_visible()
    # The tenth class has a letter; keys without a class do nothing.
    letter = page.get_by_role("button", name="class 9").first.get_attribute("aria-keyshortcuts")
    assert re.fullmatch("[a-z]", letter)
    assert letter not in "bgjksu"
    page.keyboard.press("Q")
    page.keyboard.press("Control+j")
    press(page, letter)
    wait_for(lambda: decided(folder) == {int(rows["row"][0]): ("choose", 9, "ana")})


def test_keys_do_nothing_inside_text_fields(table_audit, serve, visit):
    folder, _ = table_audit(60)
    page = visit(serve(folder).address)
    first = name_of(page)
    field = page.get_by_role("searchbox", name="Name")
    field.focus()
    page.keyboard.type("sjku 1")
    assert field.input_value() == "sjku 1"
    field.fill("")
    page.keyboard.press("Escape")
    reviewer = page.get_by_role("textbox", name="Reviewer")
    reviewer.fill("")
    reviewer.type("js gu?")
    assert name_of(page) == first
    assert decided(folder) == {}
    page.keyboard.press("Escape")
    press(page, "s")
    wait_for(lambda: [d[2] for d in decided(folder).values()] == ["js gu?"])


def test_filters_live_in_the_address(table_audit, serve, visit):
    folder, _ = table_audit(150)
    server = serve(folder)
    page = visit(server.address)
    rows = stored.read(folder).rows
    page.get_by_role("combobox", name="Given").select_option("cat")
    wait_for(lambda: "given=cat" in page.url)
    page.get_by_role("combobox", name="Suggested").select_option("dog")
    wait_for(lambda: "suggested=dog" in page.url)
    page.get_by_role("combobox", name="Rows").select_option("all")
    wait_for(lambda: "show=all" in page.url)
    pair = rows[(rows["given_label"] == 1) & (rows["suggested_label"] == 2)]
    page.get_by_text(f"1 of {len(pair)} in this filter").wait_for()
    reload(page)
    page.get_by_text(f"1 of {len(pair)} in this filter").wait_for()
    assert page.get_by_role("combobox", name="Suggested").input_value() == "dog"
    page.go_back()
    page.go_back()
    wait_for(lambda: "suggested" not in page.url and "given=cat" in page.url)
    wait_for(lambda: page.get_by_role("combobox", name="Suggested").input_value() == "")
    other = visit.tab(page.context, server.at("given=cat&suggested=dog&show=all&state=all&qmax=0.2"))
    low = pair[pair["quality"] <= 0.2]
    other.get_by_text(f"1 of {len(low)} in this filter").wait_for()


def test_what_was_decided_can_be_gone_through_again(table_audit, serve, visit):
    folder, _ = table_audit(100)
    page = visit(serve(folder).address)
    rows = ranked(folder)
    for _ in range(3):
        press(page, "Enter")
    wait_for(lambda: len(decided(folder)) == 3)
    page.get_by_role("combobox", name="Decision").select_option("decided")
    page.get_by_text("1 of 3 in this filter").wait_for()
    press(page, " ")
    wait_for(lambda: decided(folder)[int(rows["row"][0])][0] == "keep")


def test_a_class_is_found_by_typing(table_audit, serve, visit):
    names = [f"class {i:03d}" for i in range(200)] + ["a <b>zebra</b>"]
    folder, _ = table_audit(600, classes=tuple(names))
    page = visit(serve(folder).address)
    page.keyboard.press("/")
    field = page.get_by_role("combobox", name="Class", exact=True)
    field.wait_for()
    page.keyboard.type("ZEBRA")
    classes = page.get_by_role("listbox", name="Classes")
    classes.get_by_role("option", name="a <b>zebra</b>", selected=True).wait_for()
    page.keyboard.press("Enter")
    wait_for(lambda: [d[:2] for d in decided(folder).values()] == [("choose", 200)])


def test_two_tabs_show_a_conflict(table_audit, serve, visit):
    folder, _ = table_audit(60)
    server = serve(folder)
    page = visit(server.address)
    other = visit(server.address)
    other.get_by_role("textbox", name="Reviewer").fill("bo")
    other.keyboard.press("Escape")
    other.route("**/api/progress*", lambda route: route.abort())  # bo's page does not hear of ana's decision
    row_ = int(ranked(folder)["row"][0])
    press(page, "Enter")
    wait_for(lambda: row_ in decided(folder))
    press(other, " ")
    other.get_by_role("alert").get_by_text("Conflict").wait_for()
    assert decided(folder)[row_][2] == "ana"
    other.get_by_role("button", name="Store mine instead").click()
    wait_for(lambda: decided(folder)[row_][::2] == ("keep", "bo"))
    # Without being asked, ana's page shows what bo decided.
    press(page, "k")
    page.get_by_text(re.compile("Kept: .* by bo")).wait_for()


def test_two_tabs_of_one_reviewer_undo_each_other(table_audit, serve, visit):
    folder, _ = table_audit(60)
    server = serve(folder)
    page = visit(server.address)
    press(page, "s")
    wait_for(lambda: len(decided(folder)) == 1)
    second = visit.tab(page.context, server.at(""))
    wait_for(lambda: second.get_by_role("button", name="Undo").is_enabled())
    second.keyboard.press("u")
    wait_for(lambda: decided(folder) == {})


def test_grid_selects_with_shift_and_one_key_decides(folder_audit, serve, visit):
    folder, _ = folder_audit(90)
    page = visit(serve(folder).address)
    rows = ranked(folder)
    page.keyboard.press("g")
    cards = page.get_by_role("listbox", name="Rows of this filter")
    options, chosen = cards.get_by_role("option"), cards.get_by_role("option", selected=True)
    options.first.wait_for()
    options.nth(1).click()
    options.nth(4).click(modifiers=["Shift"])
    assert chosen.count() == 4
    page.keyboard.press("Enter")
    wait_for(lambda: set(decided(folder)) == set(rows["row"][1:5].tolist()))
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Shift+J")
    assert chosen.count() == 3
    page.keyboard.press("s")
    wait_for(lambda: len(decided(folder)) == 7)
    page.keyboard.press("u")
    wait_for(lambda: len(decided(folder)) == 4)
    page.keyboard.press("u")
    wait_for(lambda: decided(folder) == {})
    assert page.locator("img").first.evaluate("image => image.naturalWidth") == 16
    reload(page)
    assert page.get_by_role("button", name="Grid").get_attribute("aria-pressed") == "true"


def test_a_bulk_decision_takes_the_whole_filter(table_audit, serve, visit):
    folder, _ = table_audit(400)
    page = visit(serve(folder).address)
    n = len(ranked(folder))
    assert n > 60  # more than a page of rows
    wait_for(lambda: page.get_by_role("button", name=f"Decide all {n}").is_enabled())
    page.keyboard.press("b")
    dialog = page.get_by_role("dialog", name="Decide the whole filter")
    dialog.get_by_role("combobox", name="Decision").select_option("keep")
    dialog.get_by_role("button", name=f"Decide all {n}").click()
    wait_for(lambda: len(decided(folder)) == n)
    page.get_by_text("No row matches this filter").wait_for()
    page.keyboard.press("u")
    wait_for(lambda: decided(folder) == {})


def test_a_kill_loses_no_decision(table_audit, serve, visit):
    folder, _ = table_audit(100)
    server = serve(folder)
    page = visit(server.address)
    rows = ranked(folder)
    press(page, "Enter")
    wait_for(lambda: len(decided(folder)) == 1)
    server.kill()
    press(page, "Enter")
    press(page, " ")
    page.get_by_role("alert").get_by_text("cannot be reached").wait_for()
    page.get_by_text("2 not stored yet").wait_for()
    server.restart()
    wait_for(lambda: set(decided(folder)) == set(rows["row"][:3].tolist()))
    wait_for(lambda: page.get_by_role("alert").inner_text() == "")


@pytest.mark.parametrize("view", ["", "&view=grid"])
def test_text_from_the_data_cannot_script_the_page(table_audit, serve, visit, nasty, view):
    folder, _ = table_audit(140, classes=nasty, cells=nasty)
    server = serve(folder)
    page = visit(server.address + view)
    if not view:
        for text in nasty[:3]:
            assert page.get_by_role("button").filter(has_text=text).count() >= 1
        for _ in range(10):
            press(page, "j")
        page.keyboard.press("/")
        page.keyboard.press("Escape")
        page.get_by_role("combobox", name="Given").select_option(nasty[1])
        wait_for(lambda: "given=" in page.url)
        reload(page)
    page.wait_for_timeout(300)
    assert page.evaluate("window.hacked") is None
    assert page.locator("main script, main b, main img[src='x']").count() == 0


def test_it_fits_a_phone_and_both_themes(table_audit, serve, visit):
    folder, _ = table_audit(60)
    server = serve(folder)
    for width in (390, 820, 1400):
        page = visit(server.address, color_scheme="dark" if width == 820 else "light")
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    page.get_by_role("button", name="Theme").click()
    page.get_by_role("button", name="Theme").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 28)"


def test_apply_writes_what_was_decided(table_audit, serve, visit, tmp_path):
    folder, path = table_audit(100)
    page = visit(serve(folder).address)
    rows = ranked(folder)
    for _ in range(5):
        press(page, "Enter")
    press(page, " ")
    wait_for(lambda: len(decided(folder)) == 6)
    apply(folder, out=tmp_path / "corrected.csv")
    before, after = pd.read_csv(path), pd.read_csv(tmp_path / "corrected.csv")
    changed = before.index[before["kind"] != after["kind"]]
    accepted = rows.head(5)
    wrong = accepted[accepted["given_label"] != accepted["suggested_label"]]
    assert set(changed) == set(wrong["row"])


def test_the_report_sorts_and_filters(table_audit, visit, nasty, browser):
    folder, _ = table_audit(140, classes=nasty, cells=nasty)
    page = browser.new_page(viewport={"width": 390, "height": 800})
    problems = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(write_report(folder).as_uri())
    rows = page.locator("#list > li:not([hidden])")
    assert rows.count() == 100
    page.get_by_role("combobox", name="Given").select_option(nasty[1])
    wanted = (stored.read(folder).rows.head(100)["given_label"] == 1).sum()
    assert rows.count() == wanted
    page.get_by_role("status").get_by_text(f"{wanted} of 100 rows").wait_for()
    page.get_by_role("combobox", name="Given").select_option("")
    page.get_by_role("combobox", name="Sort by").select_option("p")
    page.get_by_role("combobox", name="Order").select_option("-1")
    p = rows.evaluate_all("items => items.map((item) => Number(item.dataset.p))")
    assert p == sorted(p, reverse=True)
    page.get_by_role("searchbox", name="Text").fill("no such text anywhere")
    assert rows.count() == 0
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert page.evaluate("window.hacked") is None
    assert problems == []
    page.close()
