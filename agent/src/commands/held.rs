//! What the owner of a lock does with it: RELEASE, EXTEND, REENTER, CONVERT, NOTE.

use palisade_core::Token;
use palisade_core::request::{Conversion, Level, NoteSequence, Ttl};

use super::command::{Call, Command, Run, Work};
use crate::refused::Refused;
use crate::reply::Reply;
use crate::spec::Spec;
use crate::values::{Name, Text, ms};
use crate::words::arguments;

arguments! {
    /// What RELEASE is asked.
    struct Release {
        owner: Name,
        [LEVEL n as level] level: Level,
        [TOKEN t as token] token: Token,
    }
}

arguments! {
    /// What EXTEND is asked.
    struct Extend {
        owner: Name,
        ttl: Ttl,
        [TOKEN t as token] token: Token,
    }
}

arguments! {
    /// What REENTER is asked.
    struct Reenter {
        owner: Name,
        [LEVEL n as level] level: Level,
        [TTL ms as ttl] ttl: Ttl,
    }
}

arguments! {
    /// What CONVERT is asked.
    struct Convert {
        owner: Name,
        mode: Conversion,
        [TOKEN t as token] token: Token,
    }
}

arguments! {
    /// What NOTE is asked.
    struct Note {
        owner: Name,
        text: Text,
        [SEQ n] seq: NoteSequence,
        [TOKEN t as token] token: Token,
    }
}

/// What is answered to a reader who wants to write.
const EXCLUSIVE: &str = "ERR CONVERT to EXCLUSIVE is for a node: two readers who ask it of a quorum at once would each get a part of the nodes \
                         and wait for the other. Release the lock and acquire it alone";

/// Gives holds back.
pub const RELEASE: Command = Command {
    spec: Spec {
        name: "LOCK.RELEASE",
        summary: "Gives one hold back, or all down to a level, and answers how many are left (0: the lock is free); Null if this owner does not \
                  hold it.",
        has_key: true,
        writes: true,
        is_open: false,
        arguments: Release::ARGUMENTS,
    },
    run: Run::OfLocks(release),
};

/// A later deadline.
pub const EXTEND: Command = Command {
    spec: Spec {
        name: "LOCK.EXTEND",
        summary: "Makes a lease last at least this long from now and answers its token; Null if this owner does not hold the lock.",
        has_key: true,
        writes: true,
        is_open: false,
        arguments: Extend::ARGUMENTS,
    },
    run: Run::OfLocks(extend),
};

/// One hold more.
pub const REENTER: Command = Command {
    spec: Spec {
        name: "LOCK.REENTER",
        summary: "Adds one hold, or as many as a level needs, and answers how many there are; Null if this owner does not hold the lock.",
        has_key: true,
        writes: true,
        is_open: false,
        arguments: Reenter::ARGUMENTS,
    },
    run: Run::OfLocks(reenter),
};

/// The same grant in another mode.
pub const CONVERT: Command = Command {
    spec: Spec {
        name: "LOCK.CONVERT",
        summary: "Makes an exclusive grant a shared one, at once and with the same token, and answers the token; Null if this owner does not hold \
                  the lock alone. Never waits. Not to EXCLUSIVE: that is for a node.",
        has_key: true,
        writes: true,
        is_open: false,
        arguments: Convert::ARGUMENTS,
    },
    run: Run::OfLocks(convert),
};

/// Another note.
pub const NOTE: Command = Command {
    spec: Spec {
        name: "LOCK.NOTE",
        summary: "Replaces the note of a grant and answers its sequence number, one more than the last one's; with SEQ only if that is larger than \
                  the last one's. Null if this owner does not hold the lock.",
        has_key: true,
        writes: true,
        is_open: false,
        arguments: Note::ARGUMENTS,
    },
    run: Run::OfLocks(note),
};

fn release(Call { state, key, words, .. }: Call) -> Result<Work, Refused> {
    let Release { owner, level, token } = Release::read(words)?;
    Ok(Work::does(async move {
        let left = state.locks.release(&key, &owner.0, level.map(Level::holds), token.map(Token::get)).await?;
        Ok(Reply::or_null(left.map(u64::from)))
    }))
}

fn extend(Call { state, key, words, .. }: Call) -> Result<Work, Refused> {
    let Extend { owner, ttl, token } = Extend::read(words)?;
    Ok(Work::does(async move {
        Ok(Reply::or_null(state.locks.extend(&key, &owner.0, ms(ttl.ms()), token.map(Token::get)).await?))
    }))
}

fn reenter(Call { state, key, words, .. }: Call) -> Result<Work, Refused> {
    let Reenter { owner, level, ttl } = Reenter::read(words)?;
    Ok(Work::does(async move {
        let ttl = ttl.map(|ttl| ms(ttl.ms()));
        let holds = state.locks.reenter(&key, &owner.0, level.map(Level::holds), ttl).await?;
        Ok(Reply::or_null(holds.map(u64::from)))
    }))
}

fn convert(Call { state, key, words, .. }: Call) -> Result<Work, Refused> {
    let Convert { owner, mode, token } = Convert::read(words)?;
    if mode == Conversion::Exclusive {
        return Err(Refused::text(EXCLUSIVE));
    }
    Ok(Work::does(async move { Ok(Reply::or_null(state.locks.share(&key, &owner.0, token.map(Token::get)).await?)) }))
}

fn note(Call { state, key, words, .. }: Call) -> Result<Work, Refused> {
    let Note { owner, text, seq, token } = Note::read(words)?;
    Ok(Work::does(async move {
        let (seq, token) = (seq.map(NoteSequence::get), token.map(Token::get));
        Ok(Reply::or_null(state.locks.note(&key, &owner.0, &text.0, seq, token).await?))
    }))
}
