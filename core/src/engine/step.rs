//! The messages between the engine and its driver: requests, steps, questions and answers.

use crate::keepalive::{ClientId, Renewal};
use crate::lock::deadlines::Due;
use crate::lock::grant::GrantId;
use crate::queue::breaking::Breaking;
use crate::queue::of_key::WaiterId;
use crate::queue::shares::Asker;
use crate::refusal::Refusal;
use crate::request::{Acquire, Annotate, Convert, Extend, NoteSequence, Owner, Reenter, Release, Wait};
use crate::values::token::Token;

/// A request for one key, from a client or from the node itself.
#[derive(Clone, Copy, Debug)]
pub enum Request<'a> {
    /// `LOCK.ACQUIRE`, from a client.
    Acquire(Acquire<'a>),
    /// `LOCK.RELEASE`, from a client.
    Release(Release<'a>),
    /// `LOCK.EXTEND`, from a client.
    Extend(Extend<'a>),
    /// `LOCK.REENTER`, from a client.
    Reenter(Reenter<'a>),
    /// `LOCK.FENCE`, from a client: raises the owner's token to this one.
    Fence(Owner<'a>, Token),
    /// `LOCK.WAIT`, from a client.
    Wait(Wait<'a>),
    /// `LOCK.CONVERT`, from a client.
    Convert(Convert<'a>),
    /// `LOCK.NOTE`, from a client.
    Note(Annotate<'a>),
    /// `LOCK.BREAK`, of the grants with this token, or of all (`None`).
    Break(Option<Token>),
    /// The next slice of a BREAK of many grants.
    BreakOn(&'a Breaking),
    /// A check whether a lease that is kept alive has to be renewed.
    Renew(&'a Renewal),
    /// The end of a lease, for which this entry of the deadlines came due.
    Expire(&'a Due),
    /// A check of the key's queue: the first request may be able to get the lock.
    Look,
}

impl Request<'_> {
    /// Returns whether the request promises more about a grant that the owner has already.
    #[inline(always)]
    pub(super) fn is_about_own_grant(&self) -> bool {
        matches!(self, Self::Extend(_) | Self::Reenter(_) | Self::Fence(..) | Self::Note(_))
    }
}

/// The next action that the engine asks of its driver. The driver notes the events of the steps, and publishes them in
/// this order after the last step: another module may answer an event with a command about the same lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Store the lock of [`super::Run::take_granted`] in the key, in place of its content. Tell replicas and the AOF,
    /// and note the event.
    Store(Event),
    /// Note that the lease of the lock in the key has ended, then store the lock of [`super::Run::take_granted`] in
    /// its place.
    Replace,
    /// This grant of the lock in the key was added or changed in place. Tell replicas and the AOF, and note the
    /// event.
    Changed(Option<Event>, GrantId),
    /// The grant of [`super::Run::take_ended`] left the lock in the key, which others hold. Tell replicas and the AOF,
    /// and note the event.
    Left(Event),
    /// Note the event. The key stays as it is for now; a later step changes or deletes it.
    Publish(Event),
    /// Note the event, and delete the key, on replicas and in the AOF too.
    Delete(Option<Event>),
    /// Answer this question, by `said` in the next call of [`super::Run::next`].
    Ask(Question),
    /// Read which slots of the cluster the node serves.
    ReadSlots,
    /// Answer all requests that wait for the key as the server answers for a slot that it does not serve.
    Redirect,
    /// The key has changed, and its lock has watchers: send the key's present content to the watchers of
    /// [`crate::Node::take_outdated`].
    AnswerWatchers,
    /// Block the client, and return the id under which it will be answered. [`Finding::No`] if it cannot be blocked, as
    /// in MULTI. The request of such a client has no WAIT: it would wait only for the disk, or for the slices of a
    /// BREAK.
    Block,
    /// Begin to write the node's state to its file, and go on without waiting for that.
    Write,
    /// The request is done: answer the command with this. Answers for other clients are in
    /// [`crate::Waiting::take_answers`].
    Done(Result<Reply, Refusal>),
}

/// A question that the engine cannot answer itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Asks whether this node serves the key, which is absent, and is not migrating it to another.
    IsServedHere,
    /// Asks whether the user of the client that waits under this id still has permission for the lock of the key.
    IsPermitted(WaiterId),
    /// Asks whether the server lets the node grant anything.
    MayGrant(By),
    /// Asks whether this connection is open, and whether the server lets the node renew the lease of its client.
    MayRenew(ClientId),
    /// Asks for the sender of the request, which has to wait. [`Finding::Refused`] if the server has no memory for
    /// that.
    WhoAsks,
    /// Asks which states are on the disk by now ([`crate::Node::on_written`]), and, if the start has not been judged
    /// yet, for its verdict.
    OnDisk,
}

/// The driver's answer to a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The answer to the question is yes, or the step is done.
    Yes,
    /// The answer to the question is no.
    No,
    /// The answer is no, and the client gets this refusal.
    Refused(Refusal),
    /// The sender of the request. Without this answer the sender is unknown.
    Asks(Asker),
    /// The client is blocked under this id.
    Blocked(WaiterId),
}

/// The cause of a step, for the question whether the node may grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// A client's write command: the server has checked that it may write.
    Command,
    /// The node itself: a timer or the server's cron, and no client's command.
    Itself,
}

/// A key event, for clients that subscribed to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A lock was granted to a request at once.
    Acquired,
    /// A lock was granted to a request that had waited.
    HandedOver,
    /// The owner gave back its last hold.
    Released,
    /// The owner extended the lease.
    Extended,
    /// The lease ended.
    Expired,
    /// An operator broke the lock.
    Broken,
    /// The owner converted its grant to another mode.
    Converted,
    /// The owner replaced its note.
    Noted,
}

/// The reply to a command that was not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The token of the owner's grant.
    Token(Token),
    /// The token of the requested grant, and its permit number.
    Granted(Token, u16),
    /// The number of holds that the owner has now.
    Holds(u32),
    /// For a LOCK.WAIT whose turn it is, the permit number that is reserved; 0 for another mode.
    Turn(u16),
    /// The sequence number of the grant's note.
    Noted(NoteSequence),
    /// Null: another owner holds the lock, or this owner does not hold it.
    Null,
    /// No reply yet, because the client waits.
    Later,
}
