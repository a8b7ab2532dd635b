//! What the lab said in a machine, line by line, and whether it is good.

use serde_json::Value;

use super::Row;

/// The marks of the cases that were run.
#[derive(Debug, Default)]
pub(super) struct Marks(Vec<Mark>);

#[derive(Debug)]
struct Mark {
    case: String,
    /// `right`, `wrong`, `unresolved`, `unproven`, or `skipped`.
    mark: String,
}

impl Marks {
    /// Takes a line in; the line as it is shown. Lines that are not the lab's are shown as they
    /// are.
    pub(super) fn read(&mut self, line: &str) -> String {
        let Some((report, case)) = report(line) else { return line.to_owned() };
        let mark = report["mark"].as_str().unwrap_or("skipped").to_owned();
        let shown = format!("{case:22} {mark:11} {}", details(&report, &mark));
        self.0.push(Mark { case, mark });
        shown
    }

    /// Whether something was marked, nothing is wrong or could not be made, and all is right but
    /// what this kernel cannot tell.
    pub(super) fn are_good(&self, row: &Row) -> bool {
        let good = |Mark { case, mark }: &Mark| match mark.as_str() {
            "right" | "skipped" => true,
            "unresolved" => row.unresolved.contains(&case.as_str()),
            _ => false,
        };
        self.0.iter().any(|mark| mark.mark != "skipped") && self.0.iter().all(good)
    }
}

fn report(line: &str) -> Option<(Value, String)> {
    let report: Value = serde_json::from_str(line).ok()?;
    let case = report["case"].as_str()?.to_owned();
    Some((report, case))
}

/// The counts, and what was remarked where not all is right.
fn details(report: &Value, mark: &str) -> String {
    let score = &report["score"];
    let count = |name: &str| score[name].as_u64().unwrap_or(0);
    if score.is_null() {
        return report["skipped"].as_str().unwrap_or_default().to_owned();
    }
    let mut text = format!(
        "{} right, {} wrong, {} unresolved, {} unseen of {}; {} misnamed, {} mistimed; {} records lost",
        count("right_slow") + count("right_lost"),
        count("wrong"),
        count("unresolved"),
        count("unseen"),
        count("guilty"),
        count("misnamed"),
        count("mistimed"),
        count("lost_records"),
    );
    if mark != "right" {
        let remarks = score["remarks"].as_array().into_iter().flatten().filter_map(Value::as_str);
        text.extend(remarks.map(|remark| format!("\n        {remark}")));
        text.push_str(&format!("\n        {}", report["truth"]));
    }
    text
}

#[cfg(test)]
mod tests {
    use virtual_machine::Release;

    use super::*;

    const ROW: Row = Row { release: Release::OLDEST, unresolved: &["shaper"] };

    fn marks(marks: &[(&str, &str)]) -> Marks {
        let line =
            |(case, mark): &(&str, &str)| format!(r#"{{"case":"{case}","mark":"{mark}","score":{{"wrong":0}}}}"#);
        let mut read = Marks::default();
        for mark in marks {
            read.read(&line(mark));
        }
        read
    }

    #[test]
    fn only_what_the_kernel_cannot_tell_may_be_unresolved() {
        assert!(marks(&[("healthy", "right"), ("shaper", "unresolved")]).are_good(&ROW));
        assert!(!marks(&[("healthy", "unresolved")]).are_good(&ROW));
        assert!(!marks(&[("shaper", "wrong")]).are_good(&ROW));
        assert!(!marks(&[("shaper", "unproven")]).are_good(&ROW));
    }

    #[test]
    fn nothing_marked_is_not_good() {
        assert!(!Marks::default().are_good(&ROW));
        let mut skipped = Marks::default();
        skipped.read(r#"{"case":"healthy","mark":null,"skipped":"not quiet"}"#);
        assert!(!skipped.are_good(&ROW));
    }

    #[test]
    fn other_lines_are_shown_and_not_marked() {
        let mut marks = Marks::default();
        assert_eq!(marks.read("kernel 6.1"), "kernel 6.1");
        assert!(!marks.are_good(&ROW));
    }
}
