//! Formats of tracepoints, as tracefs tells them.

use std::fs;

/// Where tracefs is mounted.
const FOLDERS: [&str; 2] = ["/sys/kernel/tracing/events", "/sys/kernel/debug/tracing/events"];

/// The format of a tracepoint; `None` if the kernel has none of it, or tracefs is not mounted.
pub(super) fn read(category: &str, tracepoint: &str) -> Option<String> {
    FOLDERS.iter().find_map(|folder| fs::read_to_string(format!("{folder}/{category}/{tracepoint}/format")).ok())
}

/// Whether the first field behind the common ones has one of these names and 4 bytes; true for none.
pub(super) fn begins_with(format: &str, names: &[&str]) -> bool {
    let is_first = |line: &&str| line.contains("offset:8;") && line.contains("size:4;");
    let first = format.lines().find(is_first).and_then(|line| line.split_once(';')).map(|(field, _)| field);
    names.is_empty()
        || first.is_some_and(|field| field.split_whitespace().next_back().is_some_and(|name| names.contains(&name)))
}

#[cfg(test)]
mod tests {
    use super::begins_with;

    #[test]
    fn a_field_is_where_the_format_tells() {
        let format = "name: kvm_exit\nformat:\n\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
                      \tfield:unsigned int exit_reason;\toffset:8;\tsize:4;\tsigned:0;\n";
        assert!(begins_with(format, &["exit_reason", "ret"]) && begins_with(format, &[]));
        assert!(!begins_with(format, &["common_pid"]) && !begins_with("", &["exit_reason"]));
        assert!(!begins_with("\tfield:u64 exit_reason;\toffset:8;\tsize:8;\n", &["exit_reason"]));
    }
}
