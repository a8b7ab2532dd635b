//! The page in a browser: keys, search, zoom; names that attack; no script at all.

use crate::browser::Browser;
use crate::outputs::{incident, of_recording, page, story};
use crate::text::hostile;
use serde_json::json;
use std::io::Write;
use tempfile::{Builder, NamedTempFile};

fn on_disk(page: &str) -> NamedTempFile {
    let mut file = Builder::new().suffix(".html").tempfile().unwrap();
    file.write_all(page.as_bytes()).unwrap();
    file
}

fn quiet(browser: &mut Browser, what: &str) {
    browser.value("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))");
    assert!(browser.complaints.is_empty(), "{what}: {:?}", browser.complaints);
}

#[test]
fn it_is_used_by_keyboard_alone() {
    let Some(mut browser) = Browser::start() else { return };
    let file = on_disk(&page(&of_recording("flush-stalls-pool")));
    browser.open(file.path());
    the_order_of_tabs(&mut browser);
    the_timeline(&mut browser);
    the_flame_graph(&mut browser);
    quiet(&mut browser, "after all keys");
}

/// Tab reaches each control, and each shows that it has the focus.
fn the_order_of_tabs(browser: &mut Browser) {
    let mut reached = Vec::new();
    for _ in 0..40 {
        browser.press("Tab");
        let told = browser.text(
            "(() => { const e = document.activeElement; const s = getComputedStyle(e); \
             const r = e.querySelector('rect'); const seen = s.outlineStyle !== 'none' \
             || (r && parseFloat(getComputedStyle(r).strokeWidth) >= 4); \
             return [e.matches('.checklink') ? 'check' : e.getAttribute('role') ?? e.tagName.toLowerCase(), seen].join(' '); })()",
        );
        assert!(told.ends_with("true") || told.starts_with("body"), "the focus is not seen: {told}");
        reached.push(told);
    }
    let place = |what: &str| {
        reached.iter().position(|told| told.starts_with(what)).unwrap_or_else(|| panic!("{what} in {reached:?}"))
    };
    let order = ["a", "button", "check", "input", "treeitem"].map(place);
    assert!(order.is_sorted(), "{order:?} {reached:?}");
}

fn the_timeline(browser: &mut Browser) {
    browser.value("document.querySelector('.checklink').focus()");
    let focused = "document.activeElement.getAttribute('href')";
    let first = browser.text(focused);
    browser.press("ArrowRight");
    let second = browser.text(focused);
    assert!(second.starts_with("#check-") && second != first, "{first} {second}");
    browser.press("Enter");
    let chosen = browser.text("[...document.querySelectorAll('article.check')].filter((a) => a.checkVisibility()).map((a) => '#' + a.id).join()");
    assert_eq!(chosen, second, "this check alone is shown");
    assert!(browser.text("document.getElementById('live').textContent").contains("shown below"));
    browser.value("document.querySelector(`.checklink[href='${location.hash || document.querySelector('.checklink').getAttribute('href')}']`).focus()");
    let axis = "[...document.querySelectorAll('#timeline .axis text')].map((t) => t.textContent).join()";
    let whole = browser.text(axis);
    let width = "parseFloat(document.activeElement.querySelector('.box').getAttribute('width'))";
    let before = browser.value(width).as_f64().unwrap();
    browser.press("+");
    assert_ne!(browser.text(axis), whole);
    let wider = browser.value(width).as_f64().unwrap();
    assert!((wider / before - 2.0).abs() < 0.01, "{before} {wider}");
    browser.press("Escape");
    assert_eq!(browser.text(axis), whole);
}

fn the_flame_graph(browser: &mut Browser) {
    browser.value("document.querySelector('#flame-delay [role=treeitem]').focus()");
    let level = "document.activeElement.getAttribute('aria-level')";
    browser.press("ArrowUp");
    browser.press("ArrowUp");
    browser.press("ArrowUp");
    assert_eq!(browser.text(level), "4");
    browser.press("Enter");
    let width = "document.activeElement.querySelector('.box').getAttribute('width')";
    assert_eq!(browser.text(width), "100%");
    browser.press("Escape");
    assert_ne!(browser.text(width), "100%");
    browser.press("ArrowDown");
    assert_eq!(browser.text(level), "3");
    browser.value("document.querySelector('[data-search=delay]').focus()");
    browser.call("Input.insertText", json!({ "text": "Balance_Dirty_Pages" }));
    let found = browser.value("document.querySelectorAll('#flame-delay .found').length").as_u64().unwrap();
    let wanted = "[...document.querySelectorAll('#flame-delay text')].filter((t) => t.textContent.includes('balance_dirty_pages')).length";
    assert_eq!(browser.value(wanted).as_u64(), Some(found), "all that fit, and no others");
    assert!(found > 0);
    browser.value("document.querySelectorAll('#flame-delay [role=treeitem]')[20].dispatchEvent(new MouseEvent('click', { bubbles: true }))");
    browser.value("document.querySelector('[data-zoom=in]').click()");
    browser.picture("searched-and-zoomed");
    browser.value("document.querySelector('[data-search=delay]').focus()");
    let told = browser.text("document.querySelector('[data-matched=delay]').textContent");
    assert!(told.starts_with(&format!("{found} found, 9")), "most of the delay: {told}");
    browser.press("Escape");
    assert_eq!(browser.value("document.querySelectorAll('.found').length"), 0);
}

#[test]
fn hostile_names_are_text() {
    let Some(mut browser) = Browser::start() else { return };
    for name in hostile() {
        let file = on_disk(&page(&story(&name)));
        browser.open(file.path());
        quiet(&mut browser, &name);
        assert_eq!(browser.text("typeof owned"), "undefined", "{name:.80}");
        let others =
            "document.querySelectorAll('img, iframe, object, b, [onload], [onerror], [onfocus], [autofocus]').length";
        assert_eq!(browser.value(others), 0, "{name:.80}");
        assert_eq!(browser.value("document.scripts.length"), 1);
        let start: String = name.chars().take(20).take_while(|c| !c.is_control() && c.is_ascii()).collect();
        let shown = format!("document.body.textContent.includes({})", json!(start));
        assert_eq!(browser.value(&shown), true, "it is shown as it is: {name:.80}");
    }
}

/// Even if a name became an element, it could not run.
#[test]
fn the_policy_lets_nothing_else_run_or_load() {
    let Some(mut browser) = Browser::start() else { return };
    let file = on_disk(&page(&story("server")));
    browser.open(file.path());
    quiet(&mut browser, "as it is");
    browser.value(
        "for (const [tag, key, value] of [['script', 'textContent', 'owned=1'], ['img', 'src', 'x'], ['style', 'textContent', 'body{display:none}']]) \
         { const e = document.createElement(tag); e[key] = value; document.body.append(e); }",
    );
    browser.value("new Promise((done) => setTimeout(done, 100))");
    assert_eq!(browser.text("typeof owned"), "undefined");
    assert_eq!(browser.text("getComputedStyle(document.body).display"), "block");
    assert_eq!(browser.complaints.len(), 3, "{:?}", browser.complaints);
}

#[test]
fn without_script_it_tells_all_the_same() {
    let Some(mut browser) = Browser::start() else { return };
    browser.call("Emulation.setScriptExecutionDisabled", json!({ "value": true }));
    let file = on_disk(&page(&of_recording("lock-holder-computes")));
    browser.open(file.path());
    let seen = "document.body.innerText";
    let text = browser.text(seen);
    for told in [
        "app.futex took >99 % of the delay, by stats-rollup",
        "was on CPU 388 ms of the 390 ms wait",
        "look at what the owner does",
    ] {
        assert!(text.to_lowercase().contains(&told.to_lowercase()), "{told}");
    }
    let articles = "[...document.querySelectorAll('article.check')].every((a) => a.checkVisibility())";
    assert_eq!(browser.value(articles), true);
    assert_eq!(browser.value("[...document.querySelectorAll('.controls')].some((c) => c.checkVisibility())"), false);
    assert!(browser.value("document.querySelectorAll('.flamegraph .box').length").as_u64() > Some(20));
}

/// What the page costs is told in time of its own thread's CPU, which other load on the machine does not
/// change; an idle machine needs about as long to open it.
#[test]
fn a_long_incident_opens_within_a_second() {
    let Some(mut browser) = Browser::start() else { return };
    let file = on_disk(&page(&incident()));
    browser.call("Performance.enable", json!({ "timeDomain": "threadTicks" }));
    let mut costs = Vec::new();
    for _ in 0..3 {
        browser.open(file.path());
        quiet(&mut browser, "a long incident");
        costs.push(work(&mut browser));
    }
    let elements = browser.value("document.querySelectorAll('*').length").as_u64().unwrap();
    println!("opened with {costs:.3?} s of CPU, {elements} elements");
    costs.sort_by(f64::total_cmp);
    assert!(costs[1] < 1.0, "{costs:?}");
}

/// Seconds that the page's thread has worked for it.
fn work(browser: &mut Browser) -> f64 {
    let metrics = browser.call("Performance.getMetrics", json!({}));
    let metrics = metrics["metrics"].as_array().unwrap();
    metrics.iter().find(|metric| metric["name"] == "TaskDuration").unwrap()["value"].as_f64().unwrap()
}
