//! Small files of the kernel.

use std::fs;
use std::io::Read;
use std::path::Path;

/// Most bytes of a value.
const LONGEST: u64 = 512;

/// What stands in a file, in one line, its fields one space apart; empty if it cannot be read.
pub(super) fn line(path: impl AsRef<Path>) -> String {
    words(&text(path, LONGEST)).chars().take(256).collect()
}

/// The number in a file.
pub(super) fn number(path: impl AsRef<Path>) -> Option<u64> {
    text(path, LONGEST).trim().parse().ok()
}

/// At most so many bytes of a file; empty if it cannot be read.
pub(super) fn text(path: impl AsRef<Path>, most: u64) -> String {
    let mut bytes = Vec::new();
    // Such files are never waited for: sysfs and procfs answer at once, or fail.
    let _ = fs::File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The word in brackets of `none [mq-deadline] kyber`, else all of it.
pub(super) fn chosen(text: &str) -> &str {
    let inner = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inner.map_or(text, |(word, _)| word)
}

/// Names in a folder, sorted, at most `most`.
pub(super) fn names(folder: impl AsRef<Path>, most: usize) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).take(1 << 14).collect();
    // Queues and interrupts in the order of their numbers.
    names.sort_by_key(|name| (name.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned(), trailing(name)));
    names.truncate(most);
    names
}

fn trailing(name: &str) -> u64 {
    let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    name.get(name.len() - digits..).and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{chosen, line, names, number};
    use std::fs;

    #[test]
    fn the_chosen_word_is_in_brackets() {
        assert_eq!((chosen("none [mq-deadline] kyber"), chosen("write back")), ("mq-deadline", "write back"));
    }

    #[test]
    fn values_are_one_line_and_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("value");
        fs::write(&path, "4096\t131072\n6291456\n").unwrap();
        assert_eq!(line(&path), "4096 131072 6291456");
        fs::write(&path, vec![b'x'; 1 << 16]).unwrap();
        assert_eq!(line(&path).len(), 256);
        fs::write(&path, "12\n").unwrap();
        assert_eq!((number(&path), number("/nowhere"), line("/nowhere")), (Some(12), None, String::new()));
    }

    #[test]
    fn queues_are_in_the_order_of_their_numbers() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["tx-10", "tx-2", "rx-0", "tx-0"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        assert_eq!(names(folder.path(), 3), ["rx-0", "tx-0", "tx-2"]);
    }
}
