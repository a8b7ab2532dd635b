//! Text from other people's processes, made safe to show.

use std::borrow::Cow;

/// `text` with every control, format and direction-changing character replaced by `·`, so that
/// a thread or interface name cannot move the cursor, colour the screen or hide a line.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(|c| if is_plain(c) { c } else { '·' }).collect())
}

/// Neither a control (C0, DEL, C1) nor a Unicode format, separator or private-use character.
fn is_plain(c: char) -> bool {
    !(c.is_control()
        || matches!(c,
            '\u{00ad}' | '\u{061c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e000}'..='\u{f8ff}'
            | '\u{e0000}'..='\u{10ffff}'))
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn names_cannot_steer_a_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\r\n\u{9b}c\u{202e}d"), "a·[2Jb···c·d");
    }

    #[test]
    fn plain_names_stay_as_they_are() {
        assert_eq!(printable("büro-1 µs 检查"), "büro-1 µs 检查");
    }
}
