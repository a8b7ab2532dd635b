//! The page on a phone, in the dark and on paper; pictures of it are kept to be looked at.

use crate::browser::Browser;
use crate::outputs::{of_recording, page, story};
use serde_json::Value;
use std::io::Write;
use tempfile::Builder;

/// Text of HTML whose contrast to what is behind it is below 4.5, or 3 where it is large.
const FAINT: &str = "(() => {
  const channels = (text) => text.match(/[0-9.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const colour = channels(getComputedStyle(e).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const behind = (e) => {
    const rect = e.parentElement.querySelector(':scope > rect');
    const fill = rect ? getComputedStyle(rect).fill : '';
    return fill.startsWith('rgb') ? channels(fill) : null;
  };
  const faint = [];
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim() !== '');
    if (!own || !e.checkVisibility() || ['TITLE', 'SCRIPT', 'STYLE', 'title'].includes(e.tagName)) continue;
    const s = getComputedStyle(e);
    const svg = e instanceof SVGElement;
    const below = svg ? (e.matches('.box text, svg svg text, .swatch text') ? behind(e) : ground(e.closest('svg').parentElement)) : ground(e);
    if (!below) continue;
    const [a, b] = [light(channels(svg ? s.fill : s.color)), light(below)];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const large = parseFloat(s.fontSize) >= 18.66 && Number(s.fontWeight) >= 700;
    if (contrast < (large ? 3 : 4.5)) faint.push([e.tagName, e.getAttribute('class'), e.textContent.slice(0, 20), contrast.toFixed(2)].join(' '));
  }
  return faint.slice(0, 5);
})()";

#[test]
fn it_is_legible_on_a_phone_in_the_dark_and_on_paper() {
    let Some(mut browser) = Browser::start() else { return };
    let recorded = ["lock-holder-computes", "vm-backend-asleep", "flush-stalls-pool"];
    let recorded = recorded.map(|name| (name, of_recording(name)));
    for (name, outputs) in recorded.into_iter().chain([("levels", story("server"))]) {
        let mut file = Builder::new().suffix(".html").tempfile().unwrap();
        file.write_all(page(&outputs).as_bytes()).unwrap();
        browser.open(file.path());
        for (width, scheme) in [(1280, "light"), (1280, "dark"), (360, "light"), (360, "dark")] {
            browser.screen(width, scheme, "");
            browser.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))");
            assert_eq!(browser.value(FAINT), Value::Array(Vec::new()), "{name} at {width} in {scheme}");
            let wide = browser.value("document.documentElement.scrollWidth").as_u64().unwrap();
            assert!(wide <= u64::from(width), "{name} is {wide} wide on a screen of {width}");
            browser.picture(&format!("{name}-{width}-{scheme}"));
        }
        on_paper(&mut browser, name);
        assert!(browser.complaints.is_empty(), "{:?}", browser.complaints);
    }
    println!("pictures are in {}", env!("CARGO_TARGET_TMPDIR"));
}

/// What the script hides on a screen stands on paper.
fn on_paper(browser: &mut Browser, name: &str) {
    browser.screen(794, "light", "print");
    let hidden = "[...document.querySelectorAll('article.check, article.check table, details table td')].filter((e) => !e.checkVisibility()).length";
    assert_eq!(browser.value(hidden), 0, "{name}: a part is lost on paper");
    let wide = browser.value("document.documentElement.scrollWidth").as_u64().unwrap();
    assert!(wide <= 794, "{name} is {wide} wide on paper");
    browser.print(name);
}
