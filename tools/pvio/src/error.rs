// SPDX-License-Identifier: GPL-2.0
//! The one type of error: a sentence, and the system's error that it came from.

use std::fmt;
use std::io;

use vhost::vhost_user;

/// What a user, or the log, is told.
#[derive(Debug)]
pub struct Error {
    text: String,
    cause: Option<io::Error>,
}

/// Of everything that can fail here.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The system's error number, if that is where it came from.
    pub fn raw_os_error(&self) -> Option<i32> {
        self.cause.as_ref()?.raw_os_error()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            None => f.write_str(&self.text),
            Some(cause) => write!(f, "{}: {cause}", self.text),
        }
    }
}

impl std::error::Error for Error {}

impl From<String> for Error {
    fn from(text: String) -> Self {
        Self { text, cause: None }
    }
}

impl From<&str> for Error {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

/// The front end is hung up on, and the sentence goes to the log.
impl From<Error> for vhost_user::Error {
    fn from(e: Error) -> Self {
        Self::ReqHandlerError(io::Error::other(e.to_string()))
    }
}

/// Says what an error of the system kept from being done.
pub trait Context<T> {
    /// With `what` in front of it.
    fn context(self, what: impl fmt::Display) -> Result<T>;
}

impl<T, E: Into<io::Error>> Context<T> for std::result::Result<T, E> {
    fn context(self, what: impl fmt::Display) -> Result<T> {
        self.map_err(|e| Error {
            text: what.to_string(),
            cause: Some(e.into()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_failed_and_why() {
        let gone = || Err::<(), _>(io::Error::from_raw_os_error(libc::ENOENT));
        let error = gone().context("the disk").unwrap_err();
        assert!(error.to_string().starts_with("the disk: No such file"));
        assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
        assert_eq!(Error::from("plain").to_string(), "plain");
    }
}
