//! Acquires a lock for an owner.

use std::sync::Arc;
use std::time::Duration;

use palisade_quorum::{BootTime, Token, Wanted, margin_us};
use tokio::time::{Instant, sleep, timeout};

use super::finding;
use super::handing::{Acquired, Granted, Handed};
use super::owners::{ByOwner, checked_owner};
use super::table::{Holding, Id, Keeper, Slot};
use super::told::Told;
use crate::run::attempt::Taken;
use crate::run::checked::Checked;
use crate::run::give_back::GiveBack;
use crate::run::limit::{self, LAST_TRY, within};
use crate::run::locking::{self, Sought};
use crate::run::orders;
use crate::run::renewer::Auto;
use crate::values::clock;
use crate::{Error, ErrorKind, Guard};

/// First pause before another search, if nodes have to be asked again; doubled each time.
const AGAIN: Duration = Duration::from_millis(5);

/// Longest pause between searches, except while waiting for nodes.
const AGAIN_MOST: Duration = Duration::from_secs(1);

/// The time for which a request without a wait searches the nodes for a lock of its owner while they disagree, counted from the
/// request's arrival.
const LOOKED_FOR: Duration = Duration::from_millis(200);

/// The parameters of an acquisition.
#[derive(Clone, Debug)]
pub struct Take {
    /// The key of the lock.
    pub key: Vec<u8>,
    /// The owner's name, 1 to [`NAME_BYTES_MAX`](super::NAME_BYTES_MAX) bytes.
    pub owner: Vec<u8>,
    /// Length of the lease.
    pub ttl: Duration,
    /// The requested mode.
    pub wanted: Wanted,
    /// Maximum time to wait; zero not to wait.
    pub wait: Duration,
    /// True if a lock that the owner already holds in this mode counts as acquired, and is extended.
    pub retry: bool,
    /// The note for people.
    pub note: Vec<u8>,
    /// The time for which the lease is extended at most, and the keeper whose [end](ByOwner::keeper_ended) stops that
    /// earlier.
    pub keepalive: Option<(Duration, Keeper)>,
}

/// The time and the ticket of a request that has arrived.
#[derive(Clone, Copy, Debug)]
pub struct Came {
    pub at: BootTime,
    /// The request's place in the queues of the nodes.
    pub ticket: Token,
}

/// A request to acquire a lock.
struct OneRequest<'a> {
    this: &'a ByOwner,
    take: &'a Take,
    id: &'a Id,
    checked: Checked,
    came: Came,
}

impl ByOwner {
    /// Acquires a lock; `None` if another owner holds it. If the future is dropped, the request leaves every queue, and
    /// what it has locked is released.
    ///
    /// # Errors
    /// `Owned`, `Guarded`, `NoQuorum`, `TimedOut` (unless another owner was the obstacle), `Expired`, `BadArgument`,
    /// `Closed`.
    pub async fn take(&self, take: Take) -> Result<Option<Granted>, Error> {
        let came = Came { at: clock::boot_now(), ticket: self.nodes().clock.ticket() };
        checked_owner(&take.owner)?;
        let checked = self.options(take.ttl).note(&take.note).checked()?;
        let take = Arc::new(take);
        let taking = move |this| {
            let take = Arc::clone(&take);
            async move { serve(&this, &take, checked, came).await }
        };
        let granted = self.run(taking).await?;
        Ok(granted.map(Handed::receive))
    }
}

/// Acquires the lock in one version of the set.
async fn serve(this: &ByOwner, take: &Take, checked: Checked, came: Came) -> Result<Option<Handed>, Error> {
    let id = Id { key: (*take.key).into(), owner: (*take.owner).into() };
    let slot = this.table.slot(&id);
    let asked = OneRequest { this, take, id: &id, checked, came };
    let granted = asked.unless_given_up(&slot).await;
    this.table.forget(&id, slot);
    match granted {
        Err(error) if error.kind() == ErrorKind::Contended => Ok(None),
        // The wait is over, and other owners held the lock.
        Err(error) if error.in_the_way() == Some(ErrorKind::Contended) => Ok(None),
        granted => granted.map(Some),
    }
}

impl OneRequest<'_> {
    /// Acquires the lock, unless this owner gives it back meanwhile, or the client is closed.
    async fn unless_given_up(&self, slot: &Slot) -> Result<Handed, Error> {
        let gives_up = slot.gives_up.notified();
        if let Some(handed) = self.again(slot).await? {
            return Ok(handed);
        }
        tokio::select! {
            biased;
            () = gives_up => Err(given_up()),
            () = self.this.nodes().closed() => Err(Error::closed()),
            granted = self.run(slot) => granted,
        }
    }

    async fn run(&self, slot: &Slot) -> Result<Handed, Error> {
        // The nodes let an owner in twice if it shares the lock, so its earlier grant would go unnoticed.
        if self.take.retry
            && self.take.wanted != Wanted::Exclusive
            && let Some(handed) = self.take_up(slot).await?
        {
            return Ok(handed);
        }
        let sought = Sought {
            key: Arc::clone(&self.id.key),
            owner: Some(Arc::clone(&self.id.owner)),
            request: rand::random(),
            note: self.take.note.clone(),
            wanted: self.take.wanted,
            class: self.this.client.options().counted_as(),
            ticket: self.came.ticket,
        };
        let mut pause = AGAIN;
        loop {
            let error = match self.attempt(&sought).await {
                Ok(taken) => return self.keep(slot, taken).await,
                Err(error) => error,
            };
            // Another process of this owner may have the lock, or have got it meanwhile.
            let obstacle = error.in_the_way().unwrap_or(error.kind());
            let is_own = obstacle == ErrorKind::Owned;
            let may_be_own = error.kind() == ErrorKind::TimedOut || error.holder().is_none();
            if !self.take.retry || !(is_own || (obstacle == ErrorKind::Contended && may_be_own)) {
                return Err(error);
            }
            if let Some(handed) = self.take_up(slot).await? {
                return Ok(handed);
            }
            // Another attempt of this owner has too few nodes. Its process may be about to get the others, and counts
            // those that it has. So they are neither released nor joined, and this attempt may have to wait for the end
            // of their leases.
            match self.left() {
                _ if !is_own => return Err(error),
                Duration::ZERO => return Err(attempts_meet()),
                left => self.pause(pause.min(left)).await,
            }
            pause = (pause * 2).min(AGAIN_MOST);
        }
    }

    /// Returns the time that is left for searching the nodes for a lock of this owner.
    fn left(&self) -> Duration {
        let limit = if self.take.wait.is_zero() { LOOKED_FOR } else { self.take.wait };
        limit.saturating_sub(clock::since(self.came.at))
    }

    /// Pauses, and waits for nodes if too few can be asked.
    async fn pause(&self, pause: Duration) {
        let _counted = self.this.waiting.begin();
        sleep(pause).await;
        let _ = timeout(self.left(), self.this.nodes().wait_for_majority(&self.id.key)).await;
    }

    /// Tries once to take the lock, waiting for it as long as the request allows.
    async fn attempt(&self, sought: &Sought) -> Result<Taken, Error> {
        let nodes = self.this.nodes();
        if self.take.wait.is_zero() {
            return locking::try_lock(nodes, sought, self.checked).await;
        }
        let _counted = self.this.waiting.begin();
        locking::lock(nodes, self.this.client.turns(), sought, Some(self.left()), self.checked).await
    }

    /// Returns the lock that this owner already holds by this process, if the request is a retry.
    async fn again(&self, slot: &Slot) -> Result<Option<Handed>, Error> {
        // Another request about this lock may be under way.
        let is_held = self.in_time(async { Ok(slot.held().await.is_some()) }).await?;
        match is_held {
            true if self.take.retry => self.take_up(slot).await,
            true => Err(owned()),
            false => Ok(None),
        }
    }

    /// Returns the result of `search`. A request with a wait ends it at its limit.
    async fn in_time<T>(&self, search: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let by = (!self.take.wait.is_zero()).then(|| Instant::now() + self.left() + LAST_TRY);
        within(by, Box::pin(search)).await.unwrap_or_else(|| {
            let text = format!("too few of {} nodes told in time how the lock is", self.this.nodes().len());
            Err(Error::new(ErrorKind::NoQuorum, text))
        })
    }

    /// Searches the nodes for the lock, and continues it. The nodes disagree while another attempt is being released,
    /// or adopted by a third process, so the search is repeated for a short time. A request with a wait repeats it
    /// until its limit, also if too few nodes answer.
    async fn take_up(&self, slot: &Slot) -> Result<Option<Handed>, Error> {
        let (nodes, wait) = (self.this.nodes(), self.take.wait);
        let mut pause = AGAIN;
        loop {
            let error = match self.in_time(self.find_held(slot)).await {
                Err(error) if error.kind() == ErrorKind::NoQuorum && !error.is_lasting() => error,
                looked => return looked,
            };
            let left = self.left();
            if left.is_zero() && !wait.is_zero() {
                return Err(limit::timed_out(nodes, &self.id.key, error, self.checked.given, Instant::now()).await);
            }
            // The request has to be repeated in the next version of the set.
            if left.is_zero() || nodes.is_superseded() {
                return Err(error);
            }
            self.pause(pause.min(left)).await;
            pause = (pause * 2).min(AGAIN_MOST);
        }
    }

    /// Searches the nodes for a lock that the owner already holds, and extends it. If its lease ends before they answer, the
    /// nodes may have extended it all the same, so they are searched once more.
    async fn find_held(&self, slot: &Slot) -> Result<Option<Handed>, Error> {
        let mut held = slot.held().await;
        for _ in 0..2 {
            if held.is_none() {
                *held = finding::find(self.this, self.id, slot, None, self.checked).await?;
            }
            let Some(holding) = &mut *held else { break };
            if let Some(handed) = self.extended(holding).await? {
                return Ok(Some(handed));
            }
            slot.remember(holding);
            *held = None;
        }
        Ok(None)
    }

    /// Extends the lock that the owner already holds, if it is the requested one.
    async fn extended(&self, holding: &mut Holding) -> Result<Option<Handed>, Error> {
        let lease = holding.guard.lease();
        if lease.wanted() == Wanted::Exclusive && finding::is_shared(self.this, self.id, lease, self.checked).await? {
            holding.guard.share_later();
            lease.set_wanted(Wanted::Shared);
        }
        if !is_same(lease.wanted(), self.take.wanted) {
            return Err(owned());
        }
        // A lease counts from the end of its wait.
        let from = if self.take.wait.is_zero() { self.came.at } else { clock::boot_now() };
        let waited = Duration::from_micros(from.us_since(self.came.at));
        match holding.guard.extend_until(self.checked.ttl_ms, from).await {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Lost => return Ok(None),
            Err(error) => return Err(error),
        }
        self.bind_if_kept(holding);
        let (token, number) = (holding.give_token(), holding.guard.number());
        Ok(Some(Handed::new(Granted { token, waited, number }, holding.delivery_under_way())))
    }

    /// Records a lock that was just acquired as the owner's, and extends it while its keeper lasts, if there is one.
    async fn keep(&self, slot: &Slot, taken: Taken) -> Result<Handed, Error> {
        // If this request is cancelled meanwhile, or not needed, no owner receives the lock, so it is released.
        let mut give_back = GiveBack::new(self.this.nodes(), &taken.lease, self.checked);
        let guard = self.guard(taken)?;
        let mut held = slot.held().await;
        let began = BootTime::from_us(
            (guard.valid_until().as_us() + margin_us(self.checked.ttl_ms))
                .saturating_sub(u64::from(self.checked.ttl_ms) * 1_000),
        );
        let waited = Duration::from_micros(began.us_since(self.came.at));
        let granted = Granted { token: guard.token(), waited, number: guard.number() };
        let attempt = Arc::clone(&guard.lease().owner);
        let told = Told::granted(granted.token);
        if let Some(other) = &mut *held {
            // Another request of this owner, such as an EXTEND, has found this grant on the nodes.
            if other.guard.lease().owner == attempt {
                other.told.merge(&told);
                self.bind_if_kept(other);
                give_back.disarm();
                return Ok(Handed::new(granted, other.delivery_under_way()));
            }
            // Another request of this owner was granted meanwhile, and an owner has only one grant.
            if !self.take.retry {
                return Err(owned());
            }
            return self.extended(other).await?.ok_or_else(Error::lost);
        }
        let acquired = Acquired { this: self.this.clone(), id: self.id.clone(), attempt, checked: self.checked };
        let delivery = acquired.deliver();
        let (keeper, under_way) = (None, Arc::downgrade(&delivery));
        let mut holding = Holding { told, guard, holds: 1, sequence: 0, keeper, is_used: false, delivery: under_way };
        self.bind_if_kept(&mut holding);
        *held = Some(holding);
        slot.recall(None);
        give_back.disarm();
        Ok(Handed::new(granted, Some(delivery)))
    }

    fn guard(&self, taken: Taken) -> Result<Guard, Error> {
        let (thread, nodes) = (self.this.client.thread()?, Arc::clone(&taken.nodes));
        let (shared, orders, lease) = orders::start(taken, self.checked, None, None);
        Ok(Guard::new(thread, &nodes, lease, shared, orders, self.checked))
    }

    /// If the request asks for that, extends the lock in the background until its connection ends, or for as long as it
    /// may be kept.
    fn bind_if_kept(&self, holding: &mut Holding) {
        let Some((kept, keeper)) = self.take.keepalive else { return };
        if let Some(before) = holding.keeper.replace(keeper) {
            self.this.table.stop_keeping(before, self.id);
        }
        self.this.table.keep(keeper, self.id);
        holding.guard.keep(Some(Auto { until: clock::after(kept), ttl_ms: self.checked.ttl_ms }));
    }
}

/// Returns the error of a request whose owner has another attempt on too few nodes.
fn attempts_meet() -> Error {
    let text = "another request of this owner is under way, or has left a lease on too few nodes: try again, at the latest when \
                that lease has ended";
    Error::new(ErrorKind::NoQuorum, text)
}

/// Returns whether a holder in mode `held` may have requested `wanted`; a permit's number need not be named.
fn is_same(held: Wanted, wanted: Wanted) -> bool {
    match (held, wanted) {
        (Wanted::Permit { limit: one, number: held }, Wanted::Permit { limit: other, number }) => {
            one == other && number.is_none_or(|_| number == held)
        }
        (held, wanted) => held == wanted,
    }
}

/// Returns the error of a request whose owner stopped waiting: it ends as if another owner held the lock.
fn given_up() -> Error {
    Error::new(ErrorKind::Contended, "the owner gave it back meanwhile")
}

fn owned() -> Error {
    Error::new(ErrorKind::Owned, "this owner holds the lock already")
}
