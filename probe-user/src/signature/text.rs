//! Splits the inline form into items, and remembers their columns.

use std::borrow::Cow;

use super::error::{Fault, SignatureError};

/// One `key=value`.
#[derive(Debug, Clone)]
pub(super) struct Item<'a> {
    pub(super) key: Cow<'a, str>,
    pub(super) value: Cow<'a, str>,
    pub(super) key_column: Option<usize>,
    pub(super) value_column: Option<usize>,
}

impl Item<'_> {
    pub(super) fn key_fault(&self, fault: Fault) -> SignatureError {
        SignatureError::new(self.key_column, fault)
    }

    pub(super) fn value_fault(&self, fault: Fault) -> SignatureError {
        SignatureError::new(self.value_column, fault)
    }
}

/// A part of a text that knows where in the whole it stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part<'a> {
    whole: &'a str,
    start: usize,
    end: usize,
}

impl<'a> Part<'a> {
    pub(super) fn whole(text: &'a str) -> Self {
        Part { whole: text, start: 0, end: text.len() }.trimmed()
    }

    pub(super) fn text(self) -> &'a str {
        self.whole.get(self.start..self.end).unwrap_or_default()
    }

    /// Characters from 1.
    pub(super) fn column(self) -> usize {
        let before = self.whole.get(..self.start).unwrap_or_default();
        before.chars().count() + 1
    }

    pub(super) fn fault(self, fault: Fault) -> SignatureError {
        SignatureError::new(Some(self.column()), fault)
    }

    fn between(self, start: usize, end: usize) -> Self {
        Part { start: self.start + start, end: self.start + end, ..self }.trimmed()
    }

    fn trimmed(self) -> Self {
        let text = self.text();
        let start = self.start + (text.len() - text.trim_start().len());
        let end = (self.end - (text.len() - text.trim_end().len())).max(start);
        Part { start, end, ..self }
    }

    /// Both sides of the first `separator`.
    pub(super) fn split_once(self, separator: char) -> Option<(Self, Self)> {
        let text = self.text();
        let at = text.find(separator)?;
        let behind = at + separator.len_utf8();
        Some((self.between(0, at), self.between(behind, text.len())))
    }

    /// Splits at each `separator` that is not inside quotes.
    pub(super) fn split(self, separator: char) -> Result<Vec<Self>, SignatureError> {
        let text = self.text();
        let mut parts = Vec::new();
        let (mut start, mut quote, mut escaped) = (0, None, false);
        for (at, c) in text.char_indices() {
            match c {
                _ if escaped => escaped = false,
                '\\' if quote.is_some() => escaped = true,
                '"' => quote = if quote.is_some() { None } else { Some(at) },
                _ if c == separator && quote.is_none() => {
                    parts.push(self.between(start, at));
                    start = at + c.len_utf8();
                }
                _ => {}
            }
        }
        if let Some(at) = quote {
            return Err(self.between(at, text.len()).fault(Fault::OpenQuote));
        }
        parts.push(self.between(start, text.len()));
        Ok(parts)
    }

    /// Reads `key=value,key=value`; nothing at all is no items.
    pub(super) fn items(self) -> Result<Vec<Item<'a>>, SignatureError> {
        if self.text().is_empty() {
            return Ok(Vec::new());
        }
        self.split(',')?.into_iter().map(Part::item).collect()
    }

    fn item(self) -> Result<Item<'a>, SignatureError> {
        let no_value = || self.fault(Fault::NoValue(self.text().to_owned()));
        let (key, value) = self.split_once('=').ok_or_else(no_value)?;
        Ok(Item {
            key: key.text().into(),
            value: value.text().into(),
            key_column: Some(key.column()),
            value_column: Some(value.column()),
        })
    }
}
