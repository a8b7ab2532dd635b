//! Byte strings: hex, or text in quotes.

use std::fmt::Write;

use super::error::Fault;

/// Reads `4841` or `"HA"`.
pub(super) fn parse(value: &str) -> Result<Vec<u8>, Fault> {
    let inside = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    match inside {
        Some(text) => parse_text(text),
        None => parse_hex(value).ok_or_else(|| Fault::Bytes(value.to_owned())),
    }
}

/// Writes hex.
pub(super) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// `text`, a rule, with `bytes=50494e47` written as `bytes="PING"` where the bytes are letters
/// and digits; it still reads as the same rule.
#[must_use]
pub fn readable(text: &str) -> String {
    let items = text.split_inclusive([',', ';']);
    items.map(readable_item).collect()
}

fn readable_item(item: &str) -> String {
    let (body, end) = item.split_at(item.trim_end_matches([',', ';']).len());
    let as_text = || {
        let (key, value) = body.rsplit_once('=').filter(|(key, _)| key.ends_with("bytes"))?;
        let bytes =
            parse_hex(value).filter(|bytes| !bytes.is_empty() && bytes.iter().all(u8::is_ascii_alphanumeric))?;
        Some(format!("{key}=\"{}\"{end}", String::from_utf8(bytes).ok()?))
    };
    as_text().unwrap_or_else(|| item.to_owned())
}

fn parse_hex(value: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = value.chars().map(hex_digit).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    let pairs = digits.chunks_exact(2);
    Some(pairs.map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect())
}

fn hex_digit(c: char) -> Option<u8> {
    c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

fn parse_text(text: &str) -> Result<Vec<u8>, Fault> {
    let mut bytes = Vec::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => bytes.push(escape(&mut chars)?),
            '"' => return Err(Fault::Bytes(format!("\"{text}\""))),
            _ => bytes.extend(c.encode_utf8(&mut [0; 4]).bytes()),
        }
    }
    Ok(bytes)
}

fn escape(chars: &mut std::str::Chars<'_>) -> Result<u8, Fault> {
    match chars.next() {
        Some('n') => Ok(b'\n'),
        Some('r') => Ok(b'\r'),
        Some('t') => Ok(b'\t'),
        Some('\\') => Ok(b'\\'),
        Some('"') => Ok(b'"'),
        Some('x') => {
            let digits: String = chars.take(2).collect();
            match parse_hex(&digits).as_deref() {
                Some(&[byte]) => Ok(byte),
                _ => Err(Fault::Escape(format!("x{digits}"))),
            }
        }
        other => Err(Fault::Escape(other.map(String::from).unwrap_or_default())),
    }
}

#[cfg(test)]
mod tests {
    use super::readable;

    #[test]
    fn bytes_that_are_text_are_shown_as_text() {
        assert_eq!(
            readable("udp:port=4000,at=0,bytes=50494e47,nonce=4+8"),
            "udp:port=4000,at=0,bytes=\"PING\",nonce=4+8"
        );
        assert_eq!(
            readable("udp:at=0,bytes=4841;tcp:at=2,reply-bytes=00ff"),
            "udp:at=0,bytes=\"HA\";tcp:at=2,reply-bytes=00ff"
        );
        assert_eq!(readable("stun"), "stun");
    }
}
