//! The whole document.

use super::words::{counted, shown};
use super::{Report, causes, chart, distribution, flame, losses, lost, next, queues, timeline, verdict};
use crate::bundle::{Addresses, Manifest};
use crate::sink::Names;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest, Sha256};

const STYLE: &str = include_str!("static/report.css");
const SCRIPT: &str = include_str!("static/report.js");

pub(super) fn page(report: &Report) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy());
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="referrer" content="no-referrer";
                title { "whylag report: " (title(report)) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (chart::patterns())
                (header(report))
                main { (sections(report)) }
                footer {
                    p {
                        "Made by whylag " (version()) " from "
                            (if report.bundle.is_some() { "a bundle" } else { "a recording" })
                            ". Complete in itself: it loads nothing and sends nothing."
                    }
                }
                div id="live" class="hidden" role="status" aria-live="polite" {}
                script { (PreEscaped(SCRIPT)) }
            }
        }
    }
}

const fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Nothing is loaded, and nothing runs or paints but the page's own script and style.
fn policy() -> String {
    format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'",
        hash(SCRIPT),
        hash(STYLE)
    )
}

fn hash(text: &str) -> String {
    STANDARD.encode(Sha256::digest(text.as_bytes()))
}

fn title(report: &Report) -> String {
    let run = report.run;
    format!("{} slow and {} lost of {}", run.slow, run.lost, counted(run.checks, "check"))
}

fn header(report: &Report) -> Markup {
    html! {
        header {
            h1 { (if report.run.slow + report.run.lost > 0 { "Why were health checks slow?" } else { "Were health checks slow?" }) }
            p {
                (title(report)) ", from " (seconds(&report.names, report)) " for "
                    (report.run.ended_at.since(report.run.started_at)) "."
            }
            @if let Some(manifest) = &report.bundle { p class="note" { (origin(manifest)) } }
            nav aria-label="Sections" {
                @for section in SECTIONS { a href={ "#" (section.0) } { (section.1) } }
            }
        }
    }
}

/// What a reader must know of a bundle.
fn origin(manifest: &Manifest) -> String {
    let addresses = match manifest.addresses {
        Addresses::Pseudonyms => {
            "network addresses in it are pseudonyms (IPv4 in 240.0.0.0/4, IPv6 in 2001:db8::/32), each the same all \
             through the bundle; no real host has them"
        }
        Addresses::Plain => "network addresses in it are as they were seen",
    };
    let signed = manifest.signer.as_ref().map_or("not signed", |_| "signed");
    format!(
        "From a bundle made {} by whylag {}, {signed}: {addresses}.",
        shown(&manifest.created_at),
        shown(&manifest.whylag)
    )
}

fn seconds(names: &Names, report: &Report) -> String {
    let started = names.rfc3339(report.run.started_at);
    format!("{} UTC", started.get(..19).unwrap_or(&started).replace('T', " "))
}

/// Identity and heading of each section, in order.
const SECTIONS: [(&str, &str); 10] = [
    ("verdict", "Verdict"),
    ("causes", "Causes"),
    ("time", "Timeline"),
    ("delays", "Distribution"),
    ("flames", "Flame graphs"),
    ("offenders", "Offenders"),
    ("evidence", "Evidence"),
    ("host", "Host"),
    ("missing", "What it cannot tell"),
    ("next", "What to try next"),
];

fn sections(report: &Report) -> Markup {
    let contents = [
        verdict::section(report),
        html! { (causes::section(report)) (lost::tables(&report.run.losses)) },
        timeline::section(report),
        distribution::section(report),
        flame::section(report),
        html! { (report.offenders.section()) (queues::section(report)) },
        report.witnesses.section(),
        report.facts.section(),
        losses::section(report),
        next::section(report),
    ];
    html! {
        @for ((id, heading), content) in SECTIONS.iter().zip(contents) {
            section id=(id) aria-labelledby={ (id) "-heading" } {
                h2 id={ (id) "-heading" } { (heading) }
                @if content.0.is_empty() { p class="note" { "Nothing: no check was slow or lost." } } @else { (content) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{SCRIPT, STYLE};

    #[test]
    fn script_and_style_cannot_end_their_own_element() {
        assert!(!SCRIPT.contains("</") && !STYLE.contains("</"), "it would end there");
    }
}
