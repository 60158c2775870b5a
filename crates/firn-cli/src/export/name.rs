//! Checks which keys may be paths: those that name a file below a directory and nothing else.

/// The components of `key` as a relative path, or the reason why it is not safe to write to.
pub(super) fn components(key: &[u8]) -> Result<Vec<&[u8]>, &'static str> {
    if key.contains(&0) {
        return Err("it holds a NUL byte");
    }
    if key.starts_with(b"/") {
        return Err("it is an absolute path");
    }
    let components: Vec<&[u8]> = key.split(|&byte| byte == b'/').collect();
    for component in &components {
        match *component {
            b"" => return Err("it has an empty component"),
            b"." => return Err("it has the component `.`"),
            b".." => return Err("it has the component `..`"),
            long if long.len() > 255 => return Err("it has a component of more than 255 bytes"),
            _ => {}
        }
    }
    Ok(components)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_below_is_let_through() {
        assert_eq!(
            components(b"a/b.c/...").unwrap(),
            [&b"a"[..], b"b.c", b"..."]
        );
        assert_eq!(components(b"\xff\\ \n").unwrap().len(), 1);
    }

    #[test]
    fn what_leads_elsewhere_is_refused() {
        for key in [
            "/etc/passwd",
            "..",
            "../a",
            "a/../../b",
            "a/..",
            ".",
            "a/./b",
            "a//b",
            "a/",
            "/",
            "",
            "a\0b",
        ] {
            assert!(components(key.as_bytes()).is_err(), "{key:?}");
        }
        assert!(components(&[b'x'; 256]).is_err());
    }
}
