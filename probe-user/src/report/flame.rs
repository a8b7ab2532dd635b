//! Flame graphs as part of the page: towers of boxes that can be searched, zoomed and walked
//! through.

use super::Report;
use super::chart::{ROOM, place};
use super::words::{capital, counted, ratio};
use crate::clock::DurNs;
use crate::flame::{Block, Blocks, Empty, Graph};
use maud::{Markup, html};

/// Height of a block.
const ROW: u32 = 19;
/// Blocks drawn at most, the widest.
const MOST: usize = 1_500;
/// Blocks narrower than one of so many parts of the full width are not drawn.
const PARTS: u64 = 3_333;

pub(super) fn section(report: &Report) -> Markup {
    html! {
        @match report.flame.delay() {
            Ok(graph) => { h3 { "Delay" } (drawing("delay", "Delay", &graph)) }
            Err(empty) => p { "No delay graph: " (empty) },
        }
        (further("diff", "Slow against healthy", report.flame.diff()))
        (further("cpu", "Threads on a CPU", report.threads.cpu()))
        (further("offcpu", "Threads off their CPU", report.threads.offcpu()))
    }
}

/// A graph that tells more, folded away on a screen: the delay is what is read first.
fn further(id: &str, name: &str, graph: Result<Graph, Empty>) -> Markup {
    html! {
        @match graph {
            Ok(graph) => details class="further" { summary { (name) } (drawing(id, name, &graph)) },
            Err(empty) => p class="note" { "No graph of " (name.to_lowercase()) ": " (empty) "." },
        }
    }
}

fn drawing(id: &str, name: &str, graph: &Graph) -> Markup {
    let Blocks { wide: blocks, left_out, .. } = graph.blocks(PARTS);
    let whole = blocks.first().map_or(0, |all| all.now.0);
    let drawn = widest(&blocks, whole);
    let levels = drawn.iter().map(|block| block.level).max().unwrap_or(0) + 1;
    let height = ROW * levels;
    html! {
        figure class="flame" {
            figcaption { (capital(graph.title().trim_start_matches("whylag: "))) ". " (capital(graph.told())) "." }
            div class="controls scripted" {
                label { "Search " input type="search" data-search=(id) autocomplete="off" spellcheck="false"; }
                button type="button" data-unzoom=(id) { "Whole graph" }
                span class="hint" { "Keys: arrows walk, Enter zooms, Esc shows all." }
                output class="matched" data-matched=(id) {}
            }
            svg id={ "flame-" (id) } class="chart flamegraph" height=(height) role="tree"
                aria-label={ "Flame graph: " (name) } data-ns=(whole) {
                @for block in &drawn { (tower_block(block, whole, height)) }
            }
            @if drawn.len() < blocks.len() + left_out {
                p class="note" {
                    (counted((blocks.len() + left_out - drawn.len()) as u64, "block")) " too narrow to see left out; "
                        code { "whylag flame --format folded" } " has them all."
                }
            }
        }
    }
}

/// Blocks that can be seen, and of those the widest.
fn widest(blocks: &[Block], whole: u64) -> Vec<&Block> {
    let wide = |block: &&Block| block.level == 0 || block.now.0 >= (whole / PARTS).max(1);
    let mut drawn: Vec<&Block> = blocks.iter().filter(wide).collect();
    if drawn.len() > MOST {
        let mut widths: Vec<u64> = drawn.iter().map(|block| block.now.0).collect();
        widths.sort_unstable_by(|one, two| two.cmp(one));
        let least = widths.get(MOST).copied().unwrap_or(0);
        drawn.retain(|block| block.level == 0 || block.now.0 > least);
    }
    drawn
}

fn tower_block(block: &Block, whole: u64, height: u32) -> Markup {
    let part = (ratio(block.start.0, whole), ratio(block.now.0, whole));
    let told = told(block, whole);
    let class = format!("block {}", class(block, whole));
    let label = if part.1 < ROOM { "tiny" } else { "" };
    let inner = html! {
        rect width="100%" height=(ROW - 1) {}
        text class=(label) x="3" y="13" { (block.text()) }
    };
    let drawn = place(part, height - ROW * (block.level + 1), ROW, &class, &inner);
    html! { g role="treeitem" aria-level=(block.level + 1) { title { (told) } (drawn) } }
}

/// `app.futex: 861 ms, 98.1 %`, what a healthy check takes there, and at which lines of source it was.
fn told(block: &Block, whole: u64) -> String {
    let share = ratio(block.now.0, whole) * 100.0;
    let healthy = block.before.map_or_else(String::new, |before| {
        let sign = if block.now >= before { "+" } else { "−" };
        format!("; healthy {before}, {sign}{}", DurNs(block.now.0.abs_diff(before.0)))
    });
    format!("{}: {}, {share:.1} %{healthy}{}", block.text(), block.now, block.lines())
}

/// The colour: by kind, or by the difference in five steps.
fn class(block: &Block, whole: u64) -> String {
    let Some(before) = block.before else { return format!("k-{}", block.word()) };
    let difference = ratio(block.now.0.abs_diff(before.0), whole);
    let step = match difference {
        d if d >= 0.5 => 4,
        d if d >= 0.2 => 3,
        d if d >= 0.05 => 2,
        d if d >= 0.001 => 1,
        _ => return "same".to_owned(),
    };
    format!("{}-{step}", if block.now > before { "more" } else { "less" })
}
