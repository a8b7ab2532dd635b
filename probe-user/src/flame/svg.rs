//! The drawing: inferno's, with times for people, and colours that also serve in print, in the
//! dark, and for those who do not tell red from green.

use super::graph::{Graph, Width};
use super::tower::Kind;
use crate::clock::DurNs;
use inferno::flamegraph::color::{BackgroundColor, Color, PaletteMap};
use inferno::flamegraph::{Options, TextTruncateDirection, from_lines};
use std::io;

/// More than a hundred thousand checks of an hour each; beyond it the drawing's numbers overflow.
const LONGEST: u64 = 1 << 59;

/// What the drawing writes behind a time, to be found again.
const UNIT: &str = "ns";

/// Added to the drawing's own style. Levels stay light in the dark, their text black.
const STYLE: &str = "
text { fill:#111; }
#search { opacity:0.6; }
#subtitle { fill:#555; }
#frames > g > rect { stroke:EDGE; stroke-width:0.6; }
@media (prefers-color-scheme: dark) {
  #background stop { stop-color:#1b1d21; }
  #title, #details, #unzoom, #search, #matched { fill:#e8e8e8; }
  #subtitle { fill:#b0b0b0; }
  #frames > g > rect { stroke:#1b1d21; }
}
@media print {
  #search, #unzoom { display:none; }
  #frames > g > rect { stroke:#777; }
}
";

/// Of all levels, the base that the drawing adds under all towers.
const ALL: Color = Color { r: 0xe4, g: 0xe6, b: 0xe8 };

/// Light enough for black text; kinds differ in lightness too, not in hue alone.
const fn colour(kind: Kind) -> Color {
    let (r, g, b) = match kind {
        Kind::Custody | Kind::Span => (0xd3, 0xd9, 0xdf),
        Kind::Cause => (0xf4, 0xb0, 0x6a),
        Kind::Thread => (0xa9, 0xd2, 0xea),
        Kind::Waker | Kind::Instead => (0x74, 0xb3, 0xdb),
        Kind::Cgroup | Kind::Device => (0xc9, 0xbf, 0xe3),
        Kind::Kernel => (0xf2, 0xe7, 0xcf),
        Kind::Unexplained => (0xf3, 0xe3, 0x70),
    };
    Color { r, g, b }
}

/// Draws the graph.
pub(super) fn draw(graph: &Graph) -> io::Result<String> {
    let widest = graph.shares.iter().fold(0, |sum: u64, share| sum.saturating_add(reach(share.width)));
    if widest > LONGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "its times are longer than any run lasts"));
    }
    let mut palette = palette(graph);
    let mut options = options(graph);
    options.palette_map = Some(&mut palette);
    // Drawn in the order of the towers, the last first: sorting lines as text would tear `server`
    // apart where a `server-2` stands between it and what stands on it.
    options.flame_chart = true;
    let lines = graph.lines();
    let mut drawn = Vec::new();
    from_lines(&mut options, lines.iter().rev().map(String::as_str), &mut drawn)?;
    let drawn = String::from_utf8(drawn).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok(styled(&with_units(&drawn), &style(graph)))
}

/// What a width adds to the numbers of the drawing, at most.
fn reach(width: Width) -> u64 {
    match width {
        Width::Of(time) => time.0,
        // Differences are scaled up for their colours.
        Width::Against { now, before } => now.0.max(before.0).saturating_mul(256),
    }
}

fn palette(graph: &Graph) -> PaletteMap {
    let mut palette = PaletteMap::default();
    palette.insert("", ALL);
    for level in graph.shares.iter().flat_map(|share| &share.tower) {
        palette.insert(&level.text, colour(level.kind));
    }
    palette
}

fn options<'a>(graph: &Graph) -> Options<'a> {
    let mut options = Options::default();
    options.title.clone_from(&graph.title);
    options.subtitle = Some(graph.note.clone());
    options.count_name = UNIT.to_owned();
    // Common monospaced fonts are a little wider than the drawing supposes.
    options.font_width = 0.62;
    options.name_type = "Delay:".to_owned();
    options.text_truncate_direction = TextTruncateDirection::Right;
    options.bgcolors = Some(BackgroundColor::Flat(Color { r: 255, g: 255, b: 255 }));
    options
}

/// `(861,000,000 ns, 98.10%)` in the title of each level becomes `(861 ms, 98.10%)`.
fn with_units(drawn: &str) -> String {
    const END: &str = "</title>";
    drawn.split_inclusive(END).fold(String::with_capacity(drawn.len()), |all, piece| all + &with_unit(piece))
}

fn with_unit(piece: &str) -> String {
    let told = piece.rsplit_once(" (").and_then(|(before, told)| {
        let (number, after) = told.split_once(&format!(" {UNIT}, "))?;
        let time: u64 = number.replace(',', "").parse().ok()?;
        Some(format!("{before} ({}, {after}", DurNs(time)))
    });
    told.unwrap_or_else(|| piece.to_owned())
}

/// Levels of a differential graph may be as white as the paper, and need an edge.
fn style(graph: &Graph) -> String {
    let differs = graph.shares.iter().any(|share| matches!(share.width, Width::Against { .. }));
    STYLE.replace("EDGE", if differs { "#a9adb3" } else { "#fff" })
}

fn styled(drawn: &str, style: &str) -> String {
    const END: &str = "</style>";
    match drawn.split_once(END) {
        Some((before, after)) => [before, style, END, after].concat(),
        None => drawn.to_owned(),
    }
}
