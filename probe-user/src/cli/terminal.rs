//! Standard output and standard error: what they are, and the sink that fits.

use super::args::Format;
use crate::sink::{JsonSink, Sink, TextSink, TextStyle, printable};
use std::io::{self, IsTerminal, Write};

/// Columns when the width is unknown.
const USUAL_WIDTH: usize = 100;

/// The sink for standard output; a status line only while a run is live.
pub(super) fn sink(format: Format, live: bool) -> Box<dyn Sink> {
    match format {
        Format::Json => Box::new(JsonSink::new(io::stdout())),
        Format::Text => Box::new(TextSink::new(io::stdout(), style(live))),
    }
}

fn style(live: bool) -> TextStyle {
    TextStyle { status: live && io::stdout().is_terminal(), ..look() }
}

/// Width and colour of standard output, without a status line.
pub(super) fn look() -> TextStyle {
    TextStyle { width: width(), colour: io::stdout().is_terminal() && colour_wanted(), status: false }
}

/// NO_COLOR set to anything but nothing switches colour off (<https://no-color.org>).
fn colour_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Of the terminal; else what COLUMNS says, else [`USUAL_WIDTH`].
fn width() -> usize {
    terminal_width(io::stdout()).or_else(told_width).unwrap_or(USUAL_WIDTH)
}

fn terminal_width(terminal: impl std::os::fd::AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(terminal).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

fn told_width() -> Option<usize> {
    std::env::var("COLUMNS").ok()?.parse().ok().filter(|columns| *columns > 0)
}

/// Says something about the run, on standard error, over a status line that may stand there; if
/// nobody listens, so be it. Wrapped on a terminal; elsewhere a line stays a line.
pub(super) fn say(text: &str) {
    let lines: Vec<_> = text.lines().map(printable).collect();
    let text = format!("whylag: {}", lines.join("\n  "));
    let _ = match terminal_width(io::stderr()) {
        Some(width) if io::stderr().is_terminal() => {
            writeln!(io::stderr(), "\r\u{1b}[2K{}", hanging(&text, width, 2).join("\n"))
        }
        _ => writeln!(io::stderr(), "{text}"),
    };
}

/// Text whose lines are wrapped for standard output.
pub(super) fn wrapped(text: &str) -> String {
    let width = width();
    text.lines()
        .flat_map(|line| hanging(line, width, hang_of(line)))
        .fold(String::new(), |all, line| all + &line + "\n")
}

/// A line in rows as wide as standard output, the further ones behind `hang` spaces.
pub(super) fn rows(line: &str, hang: usize) -> Vec<String> {
    hanging(line, width(), hang)
}

/// Where a line's further rows begin: under the second column if it has one, else a little to the right.
fn hang_of(line: &str) -> usize {
    let start = line.len() - line.trim_start_matches(' ').len();
    let second = line[start..].find("  ").map(|gap| {
        let rest = &line[start + gap..];
        line[..start + gap].chars().count() + rest.len() - rest.trim_start_matches(' ').len()
    });
    second.filter(|column| *column <= 30).unwrap_or(start + 2)
}

/// Each line of `text`, broken at spaces into rows of at most `width` columns; a longer word
/// is broken behind its commas, if it has any.
fn hanging(text: &str, width: usize, hang: usize) -> Vec<String> {
    let mut rows: Vec<String> = Vec::new();
    for line in text.lines() {
        let mut row = String::new();
        let mut columns = 0;
        let words = line.split_inclusive(' ').flat_map(|word| {
            let long = word.chars().count() + hang > width;
            word.split_inclusive(if long { ',' } else { '\n' })
        });
        for word in words {
            let length = word.trim_end().chars().count();
            if length > 0 && columns + length > width && columns > hang {
                rows.push(std::mem::take(&mut row).trim_end().to_owned());
                row = " ".repeat(hang);
                columns = hang;
            }
            row.push_str(word);
            columns += word.chars().count();
        }
        rows.push(row.trim_end().to_owned());
    }
    rows
}

/// An error and its causes as one sentence; a cause that the text before it has told already is
/// left out.
pub(super) fn sentence(error: &anyhow::Error) -> String {
    error
        .chain()
        .skip(1)
        .map(ToString::to_string)
        .fold(error.to_string(), |text, cause| if text.contains(&cause) { text } else { format!("{text}: {cause}") })
}

#[cfg(test)]
mod tests {
    use super::{hang_of, hanging, sentence};
    use anyhow::anyhow;

    #[test]
    fn lines_are_wrapped_under_their_second_column() {
        let line = "  means     one two three four";
        assert_eq!(hanging(line, 20, hang_of(line)), ["  means     one two", "            three", "            four"]);
        let line = "    udp:port=1,at=0 and more";
        assert_eq!(hanging(line, 20, hang_of(line)), ["    udp:port=1,at=0", "      and more"]);
        assert_eq!(hanging("short", 20, 2), ["short"]);
        let rule = "    udp:port=4000,at=0,bytes=4841";
        assert_eq!(hanging(rule, 20, hang_of(rule)), ["    udp:port=4000,", "      at=0,", "      bytes=4841"]);
    }

    #[test]
    fn each_cause_is_told_once() {
        let error = anyhow!("no memory").context("cannot make a map: no memory").context("cannot load");
        assert_eq!(sentence(&error), "cannot load: cannot make a map: no memory");
    }
}
