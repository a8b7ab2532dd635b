//! The page as bytes: always the same, complete, and nothing in it that a name put there.

use crate::outputs::{dropped, incident, of_recording, page, story};
use html5gum::{Token, Tokenizer};
use std::collections::BTreeSet;
use std::path::Path;

/// Names that try to be something else.
pub(crate) fn hostile() -> Vec<String> {
    [
        "<img src=x onerror=\"owned=1\">",
        "\"><script>owned=1</script><b title='",
        "</script></title></style></textarea><script>owned=1</script>",
        "' onfocus=owned=1 autofocus x='",
        "--><svg onload=owned=1><!--",
        "javascript:owned=1",
        "&lt;script&gt;owned=1&lt;/script&gt;",
        "a\u{0}b\u{1b}[2J\u{7}\r\nc\u{85}\u{2028}\u{2029}d",
        "\u{202e}gnp.exe\u{2066}\u{200f}\u{feff}",
        "${owned=1}{{owned=1}}<%owned=1%>",
        "\u{fffe}\u{ffff}]]><![CDATA[",
    ]
    .map(str::to_owned)
    .into_iter()
    .chain([format!("<script>{}", "x\"<".repeat(22_000))])
    .collect()
}

/// Tags and attributes of a page.
fn markup(page: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut tags, mut attributes) = (BTreeSet::new(), BTreeSet::new());
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    for token in Tokenizer::new(page) {
        if let Token::StartTag(tag) = token.unwrap() {
            tags.insert(lossy(&tag.name));
            attributes.extend(tag.attributes.keys().map(|name| lossy(name)));
        }
    }
    (tags, attributes)
}

#[test]
fn no_name_adds_markup() {
    let (tags, attributes) = markup(&page(&story("server")));
    assert!(tags.contains("svg") && attributes.contains("aria-label"), "{tags:?} {attributes:?}");
    for attribute in &attributes {
        assert!(!attribute.starts_with("on") && attribute != "style" && attribute != "src", "{attribute}");
    }
    for name in hostile() {
        let page = page(&story(&name));
        assert_eq!(markup(&page), (tags.clone(), attributes.clone()), "{name:.80}");
        let steering = |c: char| matches!(c, '\0'..='\u{8}' | '\u{b}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}');
        assert_eq!(page.chars().find(|c| steering(*c)), None, "{name:.80}");
    }
}

#[test]
fn nothing_is_loaded_from_anywhere() {
    let page = page(&of_recording("vm-backend-asleep"));
    for outside in ["http:", "https:", "url(", "@import", "<link", "<iframe", "<object", "<img", "fetch(", "XMLHttp"] {
        let found = page.match_indices(outside).map(|(at, _)| &page[at..(at + 40).min(page.len())]);
        let found: Vec<_> = found.filter(|text| !text.starts_with("url(#")).collect();
        assert!(found.is_empty(), "{found:?}");
    }
}

#[test]
fn the_same_recording_gives_the_same_bytes() {
    for name in ["lock-holder-computes", "flush-stalls-pool", "vm-backend-asleep"] {
        assert_eq!(page(&of_recording(name)), page(&of_recording(name)));
    }
}

/// `UPDATE=1 cargo test --test report` writes it anew; review the difference like code.
#[test]
fn a_small_report_reads_as_ever() {
    let page = page(&story("server"));
    let (head, rest) = page.split_once("<style>").unwrap();
    let body = rest.split_once("</style>").unwrap().1.split_once("<script>").unwrap().0;
    let head = head.split_once("script-src").unwrap().0;
    let told = format!("{head}…\n{body}").replace("><", ">\n<").replace(env!("CARGO_PKG_VERSION"), "VERSION");
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/report/story.html");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&golden, &told).unwrap();
    }
    let expected = std::fs::read_to_string(&golden).unwrap();
    let differs = expected.lines().zip(told.lines()).find(|(one, two)| one != two);
    assert!(expected == told, "{differs:?}");
}

#[test]
fn nobody_holds_a_check_whose_packet_was_dropped() {
    let page = page(&dropped());
    for told in ["somewhere on this host 40.0 ms", "dropped on this host 360 ms"] {
        assert!(page.contains(told), "{told}");
    }
}

#[test]
fn a_long_incident_is_a_page_of_a_few_mebibytes() {
    let page = page(&incident());
    assert!(page.contains("300 slow and 0 lost of 30000 checks"), "all are counted");
    assert!(page.contains("284 more are counted and not told in full"), "what is left out is said");
    assert!(page.len() < 5 << 20, "{} bytes", page.len());
    println!("{} KiB", page.len() >> 10);
}
