//! Key prefixes with metrics of their own, as an operator lists them.

use crate::values::escaped::{escape, unescape};
use crate::values::limits::{PREFIX_BYTES_MAX, PREFIXES_MAX};

/// A set of at most [`PREFIXES_MAX`] prefixes of 1 to [`PREFIX_BYTES_MAX`] bytes, in byte order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyPrefixes(Vec<Box<[u8]>>);

impl KeyPrefixes {
    /// Parses prefixes from `text`: separated by spaces, and escaped as [`escape`] does. `None` if one of them is
    /// malformed or too long, or there are too many.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let words = text.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
        let mut prefixes: Vec<Box<[u8]>> = vec![];
        for word in words {
            let prefix = unescape(word)?;
            if prefix.len() > PREFIX_BYTES_MAX || prefixes.len() == PREFIXES_MAX {
                return None;
            }
            prefixes.push(prefix.into());
        }
        prefixes.sort();
        prefixes.is_sorted_by(|one, next| one < next).then_some(Self(prefixes))
    }

    /// Formats the prefixes as text.
    pub fn to_text(&self) -> String {
        self.0.iter().map(|prefix| escape(prefix)).collect::<Vec<_>>().join(" ")
    }

    /// Iterates over the prefixes in byte order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(|prefix| &**prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_spaces_and_within_bounds() {
        let (longest, most) =
            ("x".repeat(PREFIX_BYTES_MAX), |count| (0..count).map(|n| n.to_string()).collect::<Vec<_>>().join(" "));
        let text = |text: &str| KeyPrefixes::parse(text.as_bytes()).map(|prefixes| prefixes.to_text());
        let same = |is: &str| assert_eq!(text(is).as_deref(), Some(is));
        same("");
        same("invoices: orders: orders:eu:");
        same("%00%20%25 %FF");
        same(&longest);
        assert_eq!(text("  orders:   a%3ab%c3 ").as_deref(), Some("a:b%C3 orders:"));
        assert_eq!(KeyPrefixes::parse(b"\0\xFF\n").unwrap().to_text(), "%00%FF%0A", "also what is not escaped");
        assert!(text(&most(PREFIXES_MAX)).is_some());
        for wrong in ["a b a", "a %61", "%", "%4", "%zz", &format!("{longest}x"), &most(PREFIXES_MAX + 1)] {
            assert_eq!(text(wrong), None, "{wrong}");
        }
    }
}
