//! What the engine and its driver say to each other.

use crate::keepalive::{ClientId, Renewal};
use crate::lock::deadlines::Due;
use crate::lock::grant::GrantId;
use crate::queue::breaking::Breaking;
use crate::queue::of_key::WaiterId;
use crate::queue::shares::Asker;
use crate::refusal::Refusal;
use crate::request::{Acquire, Annotate, Convert, Extend, NoteSequence, Owner, Reenter, Release, Wait};
use crate::values::token::Token;

/// What is to be done about one key.
#[derive(Clone, Copy, Debug)]
pub enum Request<'a> {
    /// `LOCK.ACQUIRE`.
    Acquire(Acquire<'a>),
    /// `LOCK.RELEASE`.
    Release(Release<'a>),
    /// `LOCK.EXTEND`.
    Extend(Extend<'a>),
    /// `LOCK.REENTER`.
    Reenter(Reenter<'a>),
    /// `LOCK.FENCE`.
    Fence(Owner<'a>, Token),
    /// `LOCK.WAIT`.
    Wait(Wait<'a>),
    /// `LOCK.CONVERT`.
    Convert(Convert<'a>),
    /// `LOCK.NOTE`.
    Note(Annotate<'a>),
    /// `LOCK.BREAK`, of the grants with this token or of all.
    Break(Option<Token>),
    /// The next slice of a BREAK.
    BreakOn(&'a Breaking),
    /// A lease that is kept alive.
    Renew(&'a Renewal),
    /// The lease of the lock has ended.
    Expire(&'a Due),
    /// Its queue is looked at.
    Look,
}

/// What the driver does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Store the lock of [`super::Run::granted`] in the key, in place of what it holds; tell replicas and the AOF, then of the
    /// event.
    Store(Event),
    /// The lease of the lock in the key has ended: tell of that, then store the one that is granted to one who asked.
    Replace,
    /// This grant of the lock in the key joined or changed, in place: tell replicas and the AOF, then of the event.
    Changed(Option<Event>, GrantId),
    /// The grant of [`super::Run::ended`] left the lock in the key, which others hold: tell replicas and the AOF, then of the event.
    Left(Event),
    /// Tell of the event. The key stays as it is for now.
    Tell(Event),
    /// Tell of the event, then delete the key, on replicas and in the AOF too.
    Delete(Option<Event>),
    /// Find this out, and say it.
    Ask(Question),
    /// Look which slots of the cluster the node serves.
    LookAtSlots,
    /// Answer everybody in the key's queue as the server answers for a slot that it does not serve.
    Redirect,
    /// The key has changed, and somebody watches its lock: tell those of [`crate::Node::take_told`] what it holds now.
    TellWatchers,
    /// Block the client, and say under which name it is answered; [`Said::No`]: it cannot be blocked. (Then it asked for no time to wait:
    /// it would wait for the disk, or for the end of a BREAK in slices.)
    Block,
    /// Have the node's state written; nobody waits for that.
    Write,
    /// Answer the command. What was decided for others is in [`crate::Waiting::take_answers`].
    Done(Result<Reply, Refusal>),
}

/// What the engine cannot know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Whether the key, which holds nothing, is served by this node, and not on its way to another.
    IsServedHere,
    /// Whether the user of the client that waits under this name may still have the lock of the key.
    IsPermitted(WaiterId),
    /// Whether the server lets the node grant anything.
    MayGrant(By),
    /// Whether this connection is open, and the server lets the node prolong what its client holds.
    MayRenew(ClientId),
    /// The sender of the request, which has to wait. [`Said::Refused`]: the server has no memory for that.
    WhoAsks,
    /// What is on the disk by now ([`crate::Node::written`]), and what the start proves, if that is not judged yet.
    OnDisk,
}

/// What the driver answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// So it is, or the step is done.
    Yes,
    /// It is not.
    No,
    /// It is not, and this is what to tell.
    Refused(Refusal),
    /// The sender of the request; any other answer stands for one that is not known.
    Asks(Asker),
    /// The client is blocked under this name.
    Blocked(WaiterId),
}

/// What brought it about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// A client's write command: the server has checked that writing is in order.
    Command,
    /// Time: nobody has.
    Itself,
}

/// What those who listen to key events are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A lock was granted to one who asked.
    Acquired,
    /// It was granted to one who waited.
    HandedOver,
    /// Its owner gave the last hold back.
    Released,
    /// Its owner asked for more time.
    Extended,
    /// Its lease ended.
    Expired,
    /// An operator took it away.
    Broken,
    /// Its owner asked for another mode.
    Converted,
    /// Its owner replaced its note.
    Noted,
}

/// How a command is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// With a grant's token.
    Token(Token),
    /// With the token of the grant that was asked for, and the number of its permit.
    Granted(Token, u16),
    /// With how many holds there are now.
    Holds(u32),
    /// With the number of the permit that is kept for the caller, whose turn it is; 0 if it is not.
    Turn(u16),
    /// With the number of the grant's note.
    Noted(NoteSequence),
    /// Not what was asked for: it is somebody else's, or not the caller's.
    Null,
    /// Later: the client waits.
    Later,
}
