//! What was measured, as a table or as JSON.

use serde_json::{Value, json};

use crate::samples::Samples;

/// A figure that is to be reached.
#[derive(Debug, Clone)]
pub(crate) struct Figure {
    text: String,
    reached: bool,
}

impl Figure {
    /// `value` is to be at most `most`.
    pub(crate) fn at_most(value: f64, most: f64, unit: &str) -> Self {
        Self { text: format!("≤ {most} {unit}"), reached: value <= most }
    }

    /// `value` is to be at least `least`.
    pub(crate) fn at_least(value: f64, least: f64, unit: &str) -> Self {
        Self { text: format!("≥ {least} {unit}"), reached: value >= least }
    }
}

/// One line of the table.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    what: String,
    unit: &'static str,
    samples: Option<Samples>,
    ratio: Option<(f64, &'static str)>,
    figure: Option<Figure>,
    note: String,
}

impl Row {
    pub(crate) fn new(what: impl Into<String>, unit: &'static str, samples: Samples) -> Self {
        Self { what: what.into(), unit, samples: Some(samples), ratio: None, figure: None, note: String::new() }
    }

    /// For what could not be measured, and why.
    pub(crate) fn missing(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self { what: what.into(), unit: "", samples: None, ratio: None, figure: None, note: why.into() }
    }

    /// `ratio` times `of`.
    pub(crate) fn ratio(self, ratio: f64, of: &'static str) -> Self {
        Self { ratio: Some((ratio, of)), ..self }
    }

    pub(crate) fn figure(self, figure: Figure) -> Self {
        Self { figure: Some(figure), ..self }
    }

    pub(crate) fn note(self, note: impl Into<String>) -> Self {
        Self { note: note.into(), ..self }
    }

    fn cells(&self) -> [String; 6] {
        let median = self.samples.as_ref().map(|samples| format!("{} {}", number(samples.median()), self.unit));
        let several = self.samples.as_ref().filter(|samples| samples.count() > 1);
        let range = several.map(|samples| format!("{}–{}", number(samples.min()), number(samples.max())));
        let ratio = self.ratio.map(|(ratio, of)| format!("{ratio:.2} × {of}"));
        let figure = self.figure.as_ref().map(|figure| figure.text.clone());
        let reached = self.figure.as_ref().map(|figure| if figure.reached { "reached" } else { "NOT reached" });
        let reached = [reached.unwrap_or_default(), &self.note].join(" ").trim().to_owned();
        let text = Option::unwrap_or_default;
        [self.what.clone(), text(median), text(range), text(ratio), text(figure), reached]
    }

    fn json(&self, bench: &str) -> Value {
        let samples = self.samples.as_ref();
        json!({
            "bench": bench,
            "what": self.what,
            "unit": self.unit,
            "median": samples.map(Samples::median),
            "min": samples.map(Samples::min),
            "max": samples.map(Samples::max),
            "samples": samples.map(Samples::count),
            "ratio": self.ratio.map(|(ratio, _)| ratio),
            "ratio_to": self.ratio.map(|(_, of)| of),
            "figure": self.figure.as_ref().map(|figure| &figure.text),
            "reached": self.figure.as_ref().map(|figure| figure.reached),
            "note": self.note,
        })
    }
}

/// Three digits that count.
fn number(number: f64) -> String {
    let decimals = match number.abs() {
        0.0 => 0,
        less if less < 0.1 => 4,
        less if less < 1.0 => 2,
        less if less < 100.0 => 1,
        _ => 0,
    };
    format!("{number:.decimals$}")
}

/// Takes the rows of all measurements.
#[derive(Debug)]
pub(crate) struct Report {
    json: bool,
    rows: Vec<[String; 6]>,
}

impl Report {
    /// An empty one; as JSON, one object a line instead of a table.
    pub(crate) fn new(json: bool) -> Self {
        Self { json, rows: Vec::new() }
    }

    pub(crate) fn add(&mut self, bench: &str, rows: Vec<Row>) {
        if self.json {
            rows.iter().for_each(|row| println!("{}", row.json(bench)));
            return;
        }
        let title = [bench, "median", "min–max", "ratio", "figure", ""].map(str::to_owned);
        self.rows.push(title);
        self.rows.extend(rows.iter().map(Row::cells));
    }

    pub(crate) fn finish(&self) {
        let width =
            |column: usize| self.rows.iter().filter_map(move |row| row.get(column)).map(|cell| cell.chars().count());
        let widths: Vec<usize> = (0..6).map(|column| width(column).max().unwrap_or(0)).collect();
        for row in &self.rows {
            let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}"));
            println!("{}", cells.collect::<Vec<_>>().join("  ").trim_end());
        }
    }
}
