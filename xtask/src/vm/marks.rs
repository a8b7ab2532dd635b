//! What the lab said in a machine, line by line, and whether it is good.

use serde_json::Value;

use super::Row;

/// How the lab says that a case could not be run to its end; those behind it are not run then.
const BROKE: &str = "lab: case ";

/// The marks of the cases that were run.
#[derive(Debug, Default)]
pub(super) struct Marks {
    of_cases: Vec<Mark>,
    /// The lab broke off.
    broke: bool,
}

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
        self.broke |= line.starts_with(BROKE);
        let Some((report, case)) = report(line) else { return line.to_owned() };
        let mark = report["mark"].as_str().unwrap_or("skipped").to_owned();
        let shown = format!("{case:22} {mark:11} {}", details(&report, &mark));
        self.of_cases.push(Mark { case, mark });
        shown
    }

    /// Whether all cases were run and something was marked, nothing is wrong or could not be made, and all
    /// is right but what this kernel cannot tell.
    pub(super) fn are_good(&self, row: &Row) -> bool {
        let good = |Mark { case, mark }: &Mark| match mark.as_str() {
            "right" | "skipped" => true,
            "unresolved" => row.unresolved.contains(&case.as_str()),
            _ => false,
        };
        let marks = &self.of_cases;
        !self.broke && marks.iter().any(|mark| mark.mark != "skipped") && marks.iter().all(good)
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
    if score.is_null() {
        return report["skipped"].as_str().unwrap_or_default().to_owned();
    }
    let inside = &report["inside"];
    let mut text = counts(score);
    if !inside.is_null() {
        let said = [counts(&inside["score"]), residence(&inside["residence"])].join("; ");
        text.push_str(&format!("\n        with the guest's half: {said}"));
    }
    if mark != "right" {
        let remarks = [score, &inside["score"]].into_iter().flat_map(|score| score["remarks"].as_array());
        let words = remarks.chain(report["details"].as_array()).flatten().filter_map(Value::as_str);
        text.extend(words.map(|word| format!("\n        {word}")));
        text.push_str(&format!("\n        {}", report["truth"]));
    }
    text
}

/// What a score's checks add up to.
fn counts(score: &Value) -> String {
    let count = |name: &str| score[name].as_u64().unwrap_or(0);
    format!(
        "{} right, {} wrong, {} unresolved, {} unseen of {}; {} misnamed, {} mistimed; {} records lost",
        count("right_slow") + count("right_lost"),
        count("wrong"),
        count("unresolved"),
        count("unseen"),
        count("guilty"),
        count("misnamed"),
        count("mistimed"),
        count("lost_records"),
    )
}

/// How the halves of the checks differ, which is what virtio takes.
fn residence(said: &Value) -> String {
    let count = |name: &str| said[name].as_u64().unwrap_or(0);
    let us = |name: &str| count(name) / 1_000;
    format!(
        "{} pairs, virtio takes {} µs (p25 {}, p95 {}), and of {} slow ones {} differ by more",
        count("joined"),
        us("cost_p50_ns"),
        us("cost_p25_ns"),
        us("cost_p95_ns"),
        count("slow"),
        count("beyond"),
    )
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
    fn a_lab_that_broke_off_is_not_good() {
        let mut broken = marks(&[("healthy", "right")]);
        broken.read("lab: case shaper: whylag did not end after an interrupt");
        assert!(!broken.are_good(&ROW));
    }

    #[test]
    fn what_the_guest_s_half_adds_is_told() {
        let inside = r#"{"mark":"right","score":{"right_slow":3,"guilty":3},
            "residence":{"joined":9,"slow":3,"beyond":1,"cost_p25_ns":1000,"cost_p50_ns":2500,"cost_p95_ns":7000}}"#;
        let line = format!(r#"{{"case":"kvm","mark":"right","score":{{"right_slow":4}},"inside":{inside}}}"#);
        let shown = Marks::default().read(&line.replace('\n', ""));
        assert!(shown.contains("4 right, ") && shown.contains("guest's half: 3 right, "), "{shown}");
        assert!(shown.contains("9 pairs, virtio takes 2 µs (p25 1, p95 7), and of 3 slow ones 1 differ"), "{shown}");
    }

    #[test]
    fn other_lines_are_shown_and_not_marked() {
        let mut marks = Marks::default();
        assert_eq!(marks.read("kernel 6.1"), "kernel 6.1");
        assert!(!marks.are_good(&ROW));
    }
}
