//! Conversion between bytes and text: escaped for people, hexadecimal for exactness, and as JSON.

use crate::exit::{Failure, Outcome};
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use serde_json::{Value as Json, json};
use std::fmt::Write;

/// Bytes readable on a terminal: text unchanged, except for control characters, backslashes and
/// bytes that are not UTF-8.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                c if c.is_control() => {
                    let mut utf8 = [0; 4];
                    c.encode_utf8(&mut utf8)
                        .bytes()
                        .for_each(|byte| escape_byte(byte, &mut out));
                }
                c => out.push(c),
            }
        }
        chunk
            .invalid()
            .iter()
            .for_each(|&byte| escape_byte(byte, &mut out));
    }
    out
}

fn escape_byte(byte: u8, out: &mut String) {
    // Writing to a `String` never fails.
    let _never_fails = write!(out, "\\x{byte:02x}");
}

/// Escaped, or in hexadecimal.
pub(crate) fn show(bytes: &[u8], hex: bool) -> String {
    if hex {
        HEXLOWER.encode(bytes)
    } else {
        escape(bytes)
    }
}

/// Bytes for JSON: hexadecimal if `hex`. Otherwise text, or `{"hex": ".."}` if it is not UTF-8, so
/// that nothing is lost.
pub(crate) fn to_json(bytes: &[u8], hex: bool) -> Json {
    if hex {
        return json!(HEXLOWER.encode(bytes));
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => json!(text),
        Err(_) => json!({ "hex": HEXLOWER.encode(bytes) }),
    }
}

/// The bytes of a key or value given on the command line.
pub(crate) fn from_argument(text: &std::ffi::OsStr, hex: bool) -> Outcome<Vec<u8>> {
    use std::os::unix::ffi::OsStrExt;
    if !hex {
        return Ok(text.as_bytes().to_vec());
    }
    HEXLOWER_PERMISSIVE
        .decode(text.as_bytes())
        .map_err(|e| Failure::usage(format!("{} is not hexadecimal: {e}", text.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes() {
        assert_eq!(escape("a\\b\tö\u{1}".as_bytes()), "a\\\\b\\tö\\x01");
        assert_eq!(escape(b"\xff\x00z"), "\\xff\\x00z");
        assert_eq!(show(b"\xff\x00", true), "ff00");
    }

    #[test]
    fn json_loses_nothing() {
        assert_eq!(to_json(b"text", false), json!("text"));
        assert_eq!(to_json(b"\xff", false), json!({ "hex": "ff" }));
        assert_eq!(to_json(b"text", true), json!("74657874"));
    }

    #[test]
    fn arguments_in_hex() {
        assert_eq!(from_argument("00fF".as_ref(), true).unwrap(), [0, 255]);
        assert!(from_argument("0".as_ref(), true).is_err());
        assert_eq!(from_argument("0".as_ref(), false).unwrap(), b"0");
    }
}
