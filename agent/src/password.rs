//! The password that connections must give, if there is one.

use std::fmt;

use subtle::ConstantTimeEq;

use crate::limits::PASSWORD_BYTES_MAX;

/// The name of the only user. A client that names no user means this one.
pub const USER: &[u8] = b"default";

/// A password. It is never shown, not even for debugging.
#[derive(Clone)]
pub struct Password(Vec<u8>);

impl Password {
    /// Creates a password of these bytes, without the line end that editors add to a file.
    ///
    /// # Errors
    ///
    /// There are no bytes, or too many.
    pub fn new(bytes: &[u8]) -> Result<Self, String> {
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        match bytes.len() {
            0 => Err("the password is empty".to_owned()),
            len if len > PASSWORD_BYTES_MAX => Err(format!("the password is longer than {PASSWORD_BYTES_MAX} bytes")),
            _ => Ok(Self(bytes.to_vec())),
        }
    }

    /// Returns true if `given` is the password. The time that this takes reveals only whether the lengths are equal.
    pub fn is(&self, given: &[u8]) -> bool {
        self.0.ct_eq(given).into()
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_end_its_line() {
        for bytes in [&b"secret"[..], b"secret\n", b"secret\r\n"] {
            let password = Password::new(bytes).unwrap();
            assert!(
                password.is(b"secret") && !password.is(b"secreT") && !password.is(b"secret\n") && !password.is(b"")
            );
            assert_eq!(format!("{password:?}"), "Password");
        }
        assert!(Password::new(b"\n").is_err() && Password::new(&[b'x'; 5_000]).is_err());
    }
}
