//! Runs the binary.

use serde_json::Value;
use std::ffi::OsStr;
use std::process::{Command, Stdio};

/// What a run left.
pub(crate) struct Run {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs `whylag` to its end, without terminal.
pub(crate) fn whylag<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Run {
    whylag_in("", arguments)
}

/// The same with so many COLUMNS.
pub(crate) fn whylag_in<A: AsRef<OsStr>>(columns: &str, arguments: impl IntoIterator<Item = A>) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_whylag"));
    let output =
        command.env("COLUMNS", columns).args(arguments).stdin(Stdio::null()).output().expect("the binary runs");
    Run {
        status: output.status.code().expect("an exit status"),
        stdout: String::from_utf8(output.stdout).expect("UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

impl Run {
    /// The lines of standard output, as JSON.
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).expect("a JSON object a line")).collect()
    }

    /// The lines of one type.
    pub(crate) fn of_type(&self, record: &str) -> Vec<Value> {
        self.lines().into_iter().filter(|line| line["type"] == record).collect()
    }

    /// One sentence on standard error says what is wrong, and names `words`.
    pub(crate) fn fails_with(&self, status: i32, words: &[&str]) {
        assert_eq!(self.status, status, "{}", self.stderr);
        for word in words {
            assert!(self.stderr.contains(word), "{word} is missing in: {}", self.stderr);
        }
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
    }
}
