//! A cursor over a command's arguments that makes validated requests of them.

use palisade_core::request::{Level, Note, Owner, Patience, Ticket, Ttl, listed_waiters};
use palisade_core::{Refusal, Token};

use crate::config;
use crate::ffi::Call;
use crate::integer::parse_integer;

/// What has not been read yet of a command's arguments after the key. The server has checked that there are as
/// many as the command needs at least.
pub struct Arguments<'a> {
    call: &'a Call<'a>,
    next: usize,
}

impl<'a> Arguments<'a> {
    /// The arguments of `call` after its key.
    pub fn after_key(call: &'a Call<'a>) -> Self {
        Self { call, next: 1 }
    }

    /// The next argument.
    fn take(&mut self) -> Option<&'a [u8]> {
        let argument = self.call.argument(self.next);
        self.next += 1;
        argument
    }

    /// The next argument as an owner.
    pub fn owner(&mut self) -> Result<Owner<'a>, Refusal> {
        Owner::new(self.take().unwrap_or_default())
    }

    /// The next argument as a ttl.
    pub fn ttl(&mut self) -> Result<Ttl, Refusal> {
        parse_ttl(self.take().unwrap_or_default())
    }

    /// The next argument as a time to wait.
    pub fn patience(&mut self) -> Result<Patience, Refusal> {
        parse_patience(self.take().unwrap_or_default())
    }

    /// The next argument as a token.
    pub fn token(&mut self) -> Result<Token, Refusal> {
        parse_token(self.take().unwrap_or_default())
    }

    /// The next argument as it is.
    pub fn bytes(&mut self) -> &'a [u8] {
        self.take().unwrap_or_default()
    }

    /// The next option's name, in whatever case the client writes it.
    pub fn option(&mut self) -> Option<&'a [u8]> {
        self.take()
    }

    /// The value of option `name`, which may be given once.
    pub fn value<T>(
        &mut self,
        name: &'static str,
        into: &mut Option<T>,
        parse: impl FnOnce(&'a [u8]) -> Result<T, Refusal>,
    ) -> Result<(), Refusal> {
        let value = self.take().ok_or(Refusal::MissingValue { name })?;
        once(name, into, parse(value)?)
    }
}

/// Keeps the value of option `name`, which may be given once.
pub fn once<T>(name: &'static str, into: &mut Option<T>, value: T) -> Result<(), Refusal> {
    match into.replace(value) {
        None => Ok(()),
        Some(_) => Err(Refusal::RepeatedOption { name }),
    }
}

/// A ttl within this node's bounds.
pub fn parse_ttl(bytes: &[u8]) -> Result<Ttl, Refusal> {
    Ttl::new(parse_integer(bytes), config::max_ttl_ms())
}

/// A token.
pub fn parse_token(bytes: &[u8]) -> Result<Token, Refusal> {
    parse_integer(bytes).and_then(Token::new).ok_or(Refusal::Token)
}

/// A time to wait.
pub fn parse_patience(bytes: &[u8]) -> Result<Patience, Refusal> {
    Patience::new(parse_integer(bytes))
}

/// A ticket.
pub fn parse_ticket(bytes: &[u8]) -> Result<Ticket, Refusal> {
    Ticket::new(parse_integer(bytes))
}

/// A number of waiters to list.
pub fn parse_listed_waiters(bytes: &[u8]) -> Result<usize, Refusal> {
    listed_waiters(parse_integer(bytes))
}

/// A number of holds.
pub fn parse_level(bytes: &[u8]) -> Result<Level, Refusal> {
    Level::new(parse_integer(bytes))
}

/// A note.
pub fn parse_note(bytes: &[u8]) -> Result<Note<'_>, Refusal> {
    Note::new(bytes)
}
