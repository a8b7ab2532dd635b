//! What whylag said of one check and of its own losses, so that a failed run can be told from its
//! printed output alone.

use super::whylag::Said;
use serde_json::Value;

/// The line on losses as it was written, and the check of this id, one part a line.
#[must_use]
pub fn excerpt(said: &Said, journey: Option<&str>) -> Vec<String> {
    let loss = said.lines.iter().filter(|line| line.starts_with(r#"{"type":"loss""#)).cloned();
    let of_check = |line: &Value| line["type"] == "journey" && line["id"].as_str() == journey;
    let lines = said.journey_lines().into_iter().rev();
    let check = lines.filter_map(|line| serde_json::from_str(line).ok()).find(of_check);
    loss.chain(check.iter().flat_map(parts)).collect()
}

fn parts(check: &Value) -> Vec<String> {
    let list = |name: &str| check[name].as_array().cloned().unwrap_or_default();
    let stages = list("stages");
    let stages = stages.iter().map(|stage| {
        let text = |name: &str| stage[name].to_string().replace('"', "");
        format!("{} {} ns on CPU {} by {}", text("stage"), text("at_ns"), text("cpu"), text("tid"))
    });
    let mut told = vec![format!("journey {} passed {}", check["id"], stages.collect::<Vec<_>>().join(", "))];
    told.extend(list("ledger").iter().map(|entry| {
        let evidence = entry["evidence"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let offender = &entry["offender"];
        format!(
            "  {} {} ns in {} by {} {}: {}",
            entry["cause"],
            entry["ns"],
            entry["span"],
            offender["tid"],
            offender["comm"],
            evidence.collect::<Vec<_>>().join("; ")
        )
    }));
    told.extend(list("unexplained_reasons").iter().map(|reason| format!("  unexplained {reason}")));
    told
}

#[cfg(test)]
mod tests {
    use super::parts;

    #[test]
    fn a_check_is_told_with_its_stages_its_evidence_and_what_is_unexplained() {
        let check = serde_json::json!({
            "type": "journey", "id": "41",
            "stages": [{"stage": "pnic_rx", "at_ns": 0, "cpu": 1, "tid": 7}],
            "ledger": [{"cause": "app.runqueue", "ns": 62, "span": "hold", "offender": {"tid": 9, "comm": "hog"},
                "evidence": ["waited", "hog ran instead"]}],
            "unexplained_reasons": ["5 ns: why"],
        });
        let told = parts(&check).join("\n");
        for words in ["pnic_rx 0 ns on CPU 1 by 7", "app.runqueue\" 62 ns", "waited; hog ran instead", "5 ns: why"] {
            assert!(told.contains(words), "{words} in {told}");
        }
    }
}
