//! The drawing: inferno's, with times for people, and colours that also serve in print, in the
//! dark, and for those who do not tell red from green.
//!
//! inferno knows a block by its text alone, and of a difference only what is left at the top of
//! a tower. So each block goes in with its number, which comes out as what is known of it.

use super::block::{Block, Blocks};
use super::graph::Graph;
use super::tower::Kind;
use crate::clock::DurNs;
use inferno::flamegraph::color::{BackgroundColor, Color, PaletteMap};
use inferno::flamegraph::{Options, TextTruncateDirection, from_lines};
use std::io;

/// More than a hundred thousand checks of an hour each; beyond it the drawing's numbers overflow.
const LONGEST: u64 = 1 << 59;

/// What takes less than one of so many parts of the width is narrower than inferno draws, a tenth of
/// a pixel of 1180, and is not even given to it.
const NARROWEST: u64 = 20_000;

/// Stands between the text of a block and its number; no level's text has one.
const MARK: char = '\u{e000}';

/// Added to the drawing's own style. Blocks stay light in the dark, their text black.
const STYLE: &str = "
text { fill:#111; }
#search { opacity:0.6; }
#subtitle { fill:#555; }
#frames > g > rect { stroke:EDGE; stroke-width:0.6; }
@media (prefers-color-scheme: dark) {
  :root { background:#1b1d21; }
  #background stop { stop-color:#1b1d21; }
  #title, #details, #unzoom, #search, #matched { fill:#e8e8e8; }
  #subtitle { fill:#b0b0b0; }
  #frames > g > rect { stroke:#1b1d21; }
  .parent { opacity:0.8; }
}
@media print {
  #search, #unzoom { display:none; }
  #frames > g > rect { stroke:#777; }
}
";

/// The block under all towers.
const ALL: Color = Color { r: 0xe4, g: 0xe6, b: 0xe8 };

/// Light enough for black text; kinds differ in lightness too, not in hue alone.
const fn colour(kind: Kind) -> Color {
    let (r, g, b) = match kind {
        Kind::Custody | Kind::Span => (0xd3, 0xd9, 0xdf),
        Kind::Cause => (0xf4, 0xb0, 0x6a),
        Kind::Thread => (0xa9, 0xd2, 0xea),
        Kind::Waker | Kind::Instead => (0x74, 0xb3, 0xdb),
        Kind::Cgroup | Kind::Device => (0xc9, 0xbf, 0xe3),
        Kind::User => (0xbf, 0xdf, 0xb0),
        Kind::Kernel => (0xf2, 0xe7, 0xcf),
        Kind::Ready => (0xf3, 0xd0, 0xa9),
        Kind::Unexplained => (0xf3, 0xe3, 0x70),
    };
    Color { r, g, b }
}

/// Red where more time is spent now, blue where less, the fuller the greater the difference: the
/// colours of every differential flame graph.
fn difference(now: u64, before: u64, greatest: u64) -> Color {
    let part = u128::from(now.abs_diff(before)) * 150 / u128::from(greatest.max(1));
    let pale = 250 - u8::try_from(part).unwrap_or(150).min(150);
    match now.cmp(&before) {
        std::cmp::Ordering::Equal => Color { r: 250, g: 250, b: 250 },
        std::cmp::Ordering::Greater => Color { r: 255, g: pale, b: pale },
        std::cmp::Ordering::Less => Color { r: pale, g: pale, b: 255 },
    }
}

/// Draws the graph.
pub(super) fn draw(graph: &Graph) -> io::Result<String> {
    let blocks = Drawn::of(graph);
    if blocks.width() > LONGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "its times are longer than any run lasts"));
    }
    let mut palette = blocks.palette();
    let mut options = options(graph);
    options.palette_map = Some(&mut palette);
    // Drawn in the order of the towers, the last first: sorting lines as text would tear `server`
    // apart where a `server-2` stands between it and what stands on it.
    options.flame_chart = true;
    let mut drawn = Vec::new();
    from_lines(&mut options, blocks.lines.iter().rev().map(String::as_str), &mut drawn)?;
    let drawn = String::from_utf8(drawn).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok(styled(&blocks.told(&drawn), &blocks.style()))
}

fn options<'a>(graph: &Graph) -> Options<'a> {
    let mut options = Options::default();
    options.title.clone_from(&graph.title);
    options.subtitle = Some(graph.note.clone());
    // Common monospaced fonts are a little wider than the drawing supposes.
    options.font_width = 0.62;
    options.name_type = format!("{}:", graph.measure);
    options.text_truncate_direction = TextTruncateDirection::Right;
    options.bgcolors = Some(BackgroundColor::Flat(Color { r: 255, g: 255, b: 255 }));
    options
}

/// The blocks of a drawing by their number, and its towers as inferno takes them.
#[derive(Debug)]
struct Drawn {
    blocks: Vec<Block>,
    lines: Vec<String>,
    compared_with: &'static str,
    /// The greatest difference of any block.
    greatest: u64,
}

impl Drawn {
    fn of(graph: &Graph) -> Self {
        let Blocks { wide, greatest, .. } = graph.blocks(NARROWEST);
        let mut drawn = Self { blocks: wide, lines: Vec::new(), compared_with: graph.compared_with, greatest };
        drawn.lines = drawn.drawn_lines();
        drawn
    }

    fn drawn(&self) -> impl Iterator<Item = (usize, &Block)> {
        self.blocks.iter().enumerate()
    }

    /// A line for each tower of blocks that are drawn. Those that differ in others alone are one line.
    fn drawn_lines(&self) -> Vec<String> {
        let mut towers = Towers::default();
        let standing = self.drawn().filter(|(_, block)| block.level > 0);
        standing.for_each(|(number, block)| towers.push(block, self.name(number)));
        towers.finish()
    }

    /// What inferno knows the block by.
    fn name(&self, number: usize) -> String {
        self.blocks.get(number).map_or_else(String::new, |block| format!("{}{MARK}{number}", block.text()))
    }

    fn width(&self) -> u64 {
        self.blocks.first().map_or(0, |all| all.now.0)
    }

    fn palette(&self) -> PaletteMap {
        let mut palette = PaletteMap::default();
        for (number, block) in self.drawn() {
            let colour = match block.before {
                Some(before) => difference(block.now.0, before.0, self.greatest),
                None => block.kind().map_or(ALL, colour),
            };
            palette.insert(if number == 0 { String::new() } else { self.name(number) }, colour);
        }
        palette
    }

    /// Blocks of a differential graph may be as white as the paper, and need an edge.
    fn style(&self) -> String {
        let differs = self.blocks.iter().any(|block| block.before.is_some());
        STYLE.replace("EDGE", if differs { "#a9adb3" } else { "#fff" })
    }

    /// The drawing, with what is known of each block instead of its number.
    fn told(&self, drawn: &str) -> String {
        const START: &str = "<title>";
        let mut pieces = drawn.split(START);
        let head = pieces.next().unwrap_or_default().to_owned();
        pieces.fold(head, |all, piece| all + START + &self.block_told(piece))
    }

    /// `futex_wait█7 (861,000,000 samples, 98.10%)</title> … >futex_wait█7</text> …`.
    fn block_told(&self, piece: &str) -> String {
        let told = piece.split_once("</title>").and_then(|(title, rest)| {
            let (name, told) = title.rsplit_once(" (")?;
            let (text, number) = name.split_once(MARK).unwrap_or((name, "0"));
            let block = self.blocks.get(number.parse::<usize>().ok()?)?;
            let percent = told.rsplit_once(", ")?.1.trim_end_matches(')');
            let rest = unmarked(rest, text);
            Some(format!("{text} ({})</title>{rest}", told_of(block, percent, self.compared_with)))
        });
        told.unwrap_or_else(|| piece.to_owned())
    }
}

/// `861 ms, 98.10%`, and in a differential graph what is compared with it.
fn told_of(block: &Block, percent: &str, compared_with: &str) -> String {
    let before = block.before.map_or_else(String::new, |before| format!("; {compared_with} {before}"));
    // All else comes escaped out of inferno; names of source files do not go through it.
    // The drawing's script takes what stands behind the last `(` for what is told.
    let lines = block.lines().replace('(', "[").replace(')', "]");
    let lines = maud::html! { (lines) }.into_string();
    format!("{}, {percent}{before}{lines}", block.now)
}

/// Blocks from left to right to lines of what stands on each other.
#[derive(Debug, Default)]
struct Towers {
    /// Names and right edges of the blocks that stand where the next line begins, from below.
    standing: Vec<(String, DurNs)>,
    /// Where the next line begins.
    at: DurNs,
    lines: Vec<String>,
}

impl Towers {
    fn push(&mut self, block: &Block, name: String) {
        while self.standing.last().is_some_and(|(_, end)| *end <= block.start) {
            self.end();
        }
        self.line_to(block.start);
        self.standing.push((name, block.end()));
    }

    /// The topmost block ends.
    fn end(&mut self) {
        if let Some((_, end)) = self.standing.last() {
            self.line_to(*end);
            self.standing.pop();
        }
    }

    fn line_to(&mut self, end: DurNs) {
        let time = end.minus(self.at);
        if time == DurNs::ZERO {
            return;
        }
        self.at = end;
        let names: Vec<_> = self.standing.iter().map(|(name, _)| name.as_str()).collect();
        self.lines.push(format!("{} {}", names.join(";"), time.0));
    }

    fn finish(mut self) -> Vec<String> {
        while !self.standing.is_empty() {
            self.end();
        }
        self.lines
    }
}

/// What follows a title, with the label of its block cut where the number begins. A label of which
/// only the number had no room is whole.
fn unmarked(rest: &str, text: &str) -> String {
    const END: &str = "</text>";
    let parts = rest.split_once(END).and_then(|(before, after)| {
        let (tag, label) = before.rsplit_once('>')?;
        Some((tag, label, after))
    });
    let Some((tag, label, after)) = parts else { return rest.to_owned() };
    let whole = label.contains(MARK) || label.strip_suffix("..") == Some(text);
    format!("{tag}>{}{END}{after}", if whole { text } else { label })
}

fn styled(drawn: &str, style: &str) -> String {
    const END: &str = "</style>";
    match drawn.split_once(END) {
        Some((before, after)) => [before, style, END, after].concat(),
        None => drawn.to_owned(),
    }
}
