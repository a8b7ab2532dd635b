//! `whylag explain`: what a cause means.

use super::{Outcome, UsageError, terminal};
use crate::attribution::{CAUSES, Cause, CauseRow};
use std::io::Write;

/// Explains the cause called `name`, or lists all.
pub(super) fn run(name: Option<&str>, out: &mut impl Write) -> anyhow::Result<Outcome> {
    match name.map(|name| (name, Cause::from_name(name))) {
        None => {
            let list = CAUSES.iter().map(|row| format!("{:<24}{}\n", row.name, row.must_be_true)).collect::<String>();
            out.write_all(terminal::wrapped(&list).as_bytes())?;
        }
        Some((_, Some(cause))) => out.write_all(terminal::wrapped(&explained(cause.row())).as_bytes())?,
        Some((name, None)) => return Err(UsageError(unknown(name)).into()),
    }
    Ok(Outcome::Healthy)
}

fn explained(row: &CauseRow) -> String {
    let siblings = CAUSES.iter().filter(|other| other.family == row.family && other.cause != row.cause);
    let names: Vec<_> = siblings.map(|other| other.name).collect();
    let names = names.join(", ");
    let parts = [
        ("means", row.must_be_true),
        ("proof", row.proof),
        ("looks like", row.looks_like),
        ("what helps", row.remedy),
        ("see also", &names),
    ];
    let told = parts.iter().filter(|(_, text)| !text.is_empty());
    told.fold(format!("{}\n", row.name), |all, (label, text)| format!("{all}  {label:<12}{text}\n"))
}

/// Characters of an unknown name that are repeated.
const LONGEST_SHOWN: usize = 60;
/// Most names that are offered for one that is unknown.
const MOST_MEANT: usize = 5;

/// An unknown name, with what may have been meant.
fn unknown(name: &str) -> String {
    let shown: String = name.chars().take(LONGEST_SHOWN).collect();
    let near = CAUSES.iter().map(|row| row.name).filter(|known| known.contains(name));
    let near: Vec<_> = near.take(if name.is_empty() { 0 } else { MOST_MEANT }).collect();
    match near.as_slice() {
        [] => format!("no cause is called '{shown}'; `whylag explain` lists all"),
        near => format!("no cause is called '{shown}'; did you mean {}?", near.join(" or ")),
    }
}

#[cfg(test)]
mod tests {
    use super::run;
    use crate::attribution::CAUSES;

    #[test]
    fn every_cause_is_listed_and_explained() {
        let mut list = Vec::new();
        run(None, &mut list).unwrap();
        let list = String::from_utf8(list).unwrap();
        for row in CAUSES {
            assert!(list.contains(row.name));
            let mut text = Vec::new();
            run(Some(row.name), &mut text).unwrap();
            let text = String::from_utf8(text).unwrap();
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.contains(row.proof), "{text}");
        }
    }

    #[test]
    fn an_unknown_cause_is_a_usage_error_with_a_hint() {
        let error = run(Some("futex"), &mut Vec::new()).unwrap_err();
        assert!(error.is::<super::UsageError>());
        assert!(error.to_string().contains("did you mean app.futex?"));
        let error = run(Some(""), &mut Vec::new()).unwrap_err();
        assert!(!error.to_string().contains("did you mean"), "{error}");
    }
}
