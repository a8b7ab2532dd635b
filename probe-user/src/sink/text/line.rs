//! Lines for people: coloured where wanted, wrapped to the width, safe to show.

use crate::sink::printable;
use std::fmt::Write as _;

/// How a piece of a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    Plain,
    Bold,
    Dim,
    Good,
    Warn,
    Bad,
}

impl Look {
    /// The escape sequence that switches it on.
    const fn escape(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Bold => "\u{1b}[1m",
            Self::Dim => "\u{1b}[2m",
            Self::Good => "\u{1b}[32m",
            Self::Warn => "\u{1b}[33m",
            Self::Bad => "\u{1b}[31;1m",
        }
    }
}

/// One line, piece by piece; what does not fit goes on below, and nothing is cut.
#[derive(Debug, Default)]
pub(super) struct Line {
    pieces: Vec<Piece>,
    /// Columns left free before each further row.
    hang: usize,
}

#[derive(Debug)]
struct Piece {
    look: Look,
    text: String,
    /// Broken at its spaces where a row ends; others move to the next row whole while they fit there.
    flows: bool,
}

impl Line {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// A line whose further rows stand under column `hang`.
    pub(super) fn hanging(hang: usize) -> Self {
        Self { pieces: Vec::new(), hang }
    }

    /// Adds a piece; whatever steers a terminal is taken out of it here, and only here.
    pub(super) fn add(self, look: Look, text: impl AsRef<str>) -> Self {
        self.piece(look, text.as_ref(), false)
    }

    /// Adds a text of many words.
    pub(super) fn flow(self, look: Look, text: impl AsRef<str>) -> Self {
        self.piece(look, text.as_ref(), true)
    }

    fn piece(mut self, look: Look, text: &str, flows: bool) -> Self {
        self.pieces.push(Piece { look, text: printable(text).into_owned(), flows });
        self
    }

    pub(super) fn plain(self, text: impl AsRef<str>) -> Self {
        self.add(Look::Plain, text)
    }

    pub(super) fn dim(self, text: impl AsRef<str>) -> Self {
        self.add(Look::Dim, text)
    }

    /// Columns that it takes in one row; every character counts as one.
    pub(super) fn columns(&self) -> usize {
        self.pieces.iter().map(|piece| piece.text.chars().count()).sum()
    }

    /// The line without its end, in rows of at most `width` columns.
    pub(super) fn render(&self, width: usize, colour: bool) -> Vec<String> {
        let mut rows = Rows::new(width, self.hang, colour);
        self.pieces.iter().for_each(|piece| rows.piece(piece));
        rows.done
    }
}

/// Rows as they fill.
struct Rows {
    done: Vec<String>,
    width: usize,
    hang: usize,
    colour: bool,
    /// Columns of the last row.
    column: usize,
    /// Spaces owed before the next word.
    gap: usize,
}

impl Rows {
    fn new(width: usize, hang: usize, colour: bool) -> Self {
        let hang = if hang + 20 > width { 2 } else { hang };
        Self { done: vec![String::new()], width, hang, colour, column: 0, gap: 0 }
    }

    fn piece(&mut self, piece: &Piece) {
        let body = piece.text.trim_matches(' ');
        self.gap += piece.text.len() - piece.text.trim_start_matches(' ').len();
        if body.is_empty() {
            return;
        }
        let length = body.chars().count();
        if self.fits(length) {
            self.put(piece.look, body, length);
        } else if !piece.flows && self.hang + length <= self.width {
            self.next_row();
            self.put(piece.look, body, length);
        } else {
            self.words(piece.look, body);
        }
        self.gap = piece.text.len() - piece.text.trim_end_matches(' ').len();
    }

    fn words(&mut self, look: Look, text: &str) {
        for word in text.split(' ').filter(|word| !word.is_empty()) {
            let length = word.chars().count();
            if !self.fits(length) && self.column > self.hang {
                self.next_row();
            }
            if self.fits(length) {
                self.put(look, word, length);
            } else {
                self.letters(look, word);
            }
            self.gap = 1;
        }
    }

    /// A word longer than a row.
    fn letters(&mut self, look: Look, word: &str) {
        let letters: Vec<char> = word.chars().collect();
        for part in letters.chunks(self.width.saturating_sub(self.hang).max(1)) {
            if !self.fits(part.len()) {
                self.next_row();
            }
            self.put(look, &part.iter().collect::<String>(), part.len());
        }
    }

    const fn fits(&self, length: usize) -> bool {
        self.column + self.gap + length <= self.width
    }

    fn next_row(&mut self) {
        self.done.push(String::new());
        (self.column, self.gap) = (0, self.hang);
    }

    fn put(&mut self, look: Look, text: &str, length: usize) {
        let Some(row) = self.done.last_mut() else { return };
        let _ = write!(row, "{:1$}", "", self.gap);
        paint(row, look, text, self.colour);
        self.column += self.gap + length;
        self.gap = 0;
    }
}

fn paint(to: &mut String, look: Look, text: &str, colour: bool) {
    if !colour || look == Look::Plain || text.is_empty() {
        to.push_str(text);
    } else {
        let _ = write!(to, "{}{text}\u{1b}[0m", look.escape());
    }
}

#[cfg(test)]
mod tests {
    use super::{Line, Look};

    #[test]
    fn a_piece_that_does_not_fit_goes_below() {
        let line = Line::hanging(2).plain("abc").add(Look::Bad, "  defgh").dim("  xyz ");
        assert_eq!(line.render(30, false), ["abc  defgh  xyz"]);
        assert_eq!(line.render(25, false), ["abc  defgh  xyz"]);
        assert_eq!(line.render(9, false), ["abc", "  defgh", "  xyz"]);
    }

    #[test]
    fn words_flow_and_the_longest_is_broken_not_cut() {
        let line = Line::hanging(2).flow(Look::Plain, "one two  three").plain(" 0123456789abc");
        assert_eq!(line.render(9, false), ["one two", "  three", "  0123456", "  789abc"]);
    }

    #[test]
    fn columns_before_the_first_word_stay() {
        assert_eq!(Line::new().plain("    12 ms").plain("  x").render(20, false), ["    12 ms  x"]);
    }

    #[test]
    fn colour_is_only_there_when_asked_for() {
        let line = Line::new().add(Look::Good, "ok");
        assert_eq!(line.render(10, false), ["ok"]);
        assert_eq!(line.render(10, true), ["\u{1b}[32mok\u{1b}[0m"]);
    }
}
