//! Taking a lock for an owner.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use palisade_quorum::{BootTime, Token, Wanted, majority, margin_us};
use tokio::time::{Instant, sleep, timeout};

use super::finding;
use super::owners::{ByOwner, checked_owner};
use super::table::{Holding, Id, Keeper, Slot};
use crate::run::attempt::Taken;
use crate::run::checked::Checked;
use crate::run::give_back::GiveBack;
use crate::run::limit::{self, LAST_TRY, within};
use crate::run::locking::{self, Sought};
use crate::run::renewer::{self, Auto};
use crate::values::clock;
use crate::{Error, ErrorKind, Guard, Why};

/// An extension is begun anew so often, where it joined one that had begun before.
const EXTENDED_TIMES: u32 = 7;

/// First pause before that, where nodes have to be asked once more what they have; twice as long each time.
const AGAIN: Duration = Duration::from_millis(5);

/// Longest pause between looks, unless nodes are waited for.
const AGAIN_MOST: Duration = Duration::from_secs(1);

/// For how long after it came a request that does not wait looks again where nodes do not agree.
const LOOKED_FOR: Duration = Duration::from_millis(200);

/// What is to be taken, and how.
#[derive(Clone, Debug)]
pub struct Take {
    /// The lock.
    pub key: Vec<u8>,
    /// The owner's name, 1 to [`NAME_BYTES_MAX`](super::NAME_BYTES_MAX) bytes.
    pub owner: Vec<u8>,
    /// Length of the lease.
    pub ttl: Duration,
    /// In which mode.
    pub wanted: Wanted,
    /// Waits for so long.
    pub wait: Duration,
    /// If the owner has it already, in this mode, that is as good, and is extended.
    pub retry: bool,
    /// For people.
    pub note: Vec<u8>,
    /// The lease is extended for so long, as long as this keeper has not [ended](ByOwner::keeper_ended).
    pub keepalive: Option<(Duration, Keeper)>,
}

/// A lock that was taken: valid until *asked + waited + ttl*, less 1 % of the ttl and 2 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The fencing token.
    pub token: u64,
    /// How long it was waited for.
    pub waited: Duration,
    /// The number of the permit; 1 in the other modes.
    pub number: u16,
}

/// When a request came.
#[derive(Clone, Copy, Debug)]
pub struct Came {
    pub at: BootTime,
    /// Its place in the queues of the nodes.
    pub ticket: Token,
}

/// One request, and when it came.
struct Asked<'a> {
    this: &'a ByOwner,
    take: &'a Take,
    id: &'a Id,
    checked: Checked,
    came: Came,
}

impl ByOwner {
    /// Takes a lock; `None`: somebody else holds it. Dropped meanwhile, the request leaves every queue and nothing stays locked.
    ///
    /// # Errors
    /// `Owned`, `Guarded`, `NoQuorum`, `TimedOut` (if it was not somebody else that stood in the way), `Expired`, `BadArgument`, `Closed`.
    pub async fn take(&self, take: Take) -> Result<Option<Granted>, Error> {
        let came = Came { at: clock::boot_now(), ticket: self.nodes().clock.ticket() };
        checked_owner(&take.owner)?;
        let checked = self.options(take.ttl).note(&take.note).checked()?;
        let take = Arc::new(take);
        let taking = move |this| {
            let take = Arc::clone(&take);
            async move { serve(&this, &take, checked, came).await }
        };
        self.run(taking).await
    }
}

/// Takes it in one version of the set.
async fn serve(this: &ByOwner, take: &Take, checked: Checked, came: Came) -> Result<Option<Granted>, Error> {
    let id = Id { key: (*take.key).into(), owner: (*take.owner).into() };
    let slot = this.table.slot(&id);
    let asked = Asked { this, take, id: &id, checked, came };
    let granted = asked.run(&slot).await;
    this.table.forget(&id, slot);
    match granted {
        Err(error) if error.kind() == ErrorKind::Contended => Ok(None),
        // The wait is over, and it was others who stood in the way.
        Err(error) if error.in_the_way() == Some(ErrorKind::Contended) => Ok(None),
        granted => granted.map(Some),
    }
}

impl Asked<'_> {
    async fn run(&self, slot: &Slot) -> Result<Granted, Error> {
        if let Some(granted) = self.again(slot).await? {
            return Ok(granted);
        }
        let sought = Sought {
            key: self.take.key.clone(),
            owner: Some(self.take.owner.clone()),
            request: rand::random(),
            note: self.take.note.clone(),
            wanted: self.take.wanted,
            class: self.this.client.options().counted_as(),
            ticket: self.came.ticket,
        };
        let mut again = true;
        loop {
            let error = match self.attempt(slot, &sought).await? {
                Ok(taken) => return self.keep(slot, taken).await,
                Err(error) => error,
            };
            match error.kind() {
                // By an attempt of a process that is gone, or of another one.
                ErrorKind::Owned if self.take.retry && again => {
                    if let Some(granted) = self.take_up(slot).await? {
                        return Ok(granted);
                    }
                    // What is left of that attempt is in its owner's way.
                    finding::free(self.this, self.id, None, self.checked).await?;
                    again = false;
                }
                _ => return Err(error),
            }
        }
    }

    /// Asks the nodes; an error of its own if the caller has given up.
    async fn attempt(&self, slot: &Slot, sought: &Sought) -> Result<Result<Taken, Error>, Error> {
        let taking = async {
            let (nodes, wait) = (self.this.nodes(), self.take.wait);
            if wait.is_zero() {
                return locking::try_lock(nodes, sought, self.checked).await;
            }
            let _counted = self.this.waiting.begin();
            let left = wait.saturating_sub(clock::since(self.came.at));
            locking::lock(nodes, self.this.client.turns(), sought, Some(left), self.checked).await
        };
        tokio::select! {
            biased;
            () = slot.gives_up.notified() => Ok(Err(given_up())),
            () = self.this.nodes().closed() => Err(Error::closed()),
            taken = taking => Ok(taken),
        }
    }

    /// What this owner holds already, if it says that it repeats itself.
    async fn again(&self, slot: &Slot) -> Result<Option<Granted>, Error> {
        let mut held = slot.held.lock().await;
        if held.as_ref().is_some_and(|held| held.guard.is_lost()) {
            *held = None;
        }
        if let Some(holding) = &mut *held {
            if !self.take.retry {
                return Err(owned());
            }
            return self.extended(holding).await;
        }
        drop(held);
        // Who has it together with others is not seen by being refused.
        if self.take.retry && self.take.wanted != Wanted::Exclusive { self.take_up(slot).await } else { Ok(None) }
    }

    /// Looks for it on the nodes, and goes on with it. While another attempt is being given back, or adopted by a third process, the nodes do not
    /// agree: it looks again for a moment. With a wait it does so until its limit, also where too few nodes answer.
    async fn take_up(&self, slot: &Slot) -> Result<Option<Granted>, Error> {
        let (nodes, wait) = (self.this.nodes(), self.take.wait);
        let limit = if wait.is_zero() { LOOKED_FOR } else { wait };
        let left = || limit.saturating_sub(clock::since(self.came.at));
        let by = (!wait.is_zero()).then(|| Instant::now() + left() + LAST_TRY);
        let mut gives_up = pin!(slot.gives_up.notified());
        let mut pause = AGAIN;
        loop {
            let error = match within(by, Box::pin(self.look(slot))).await {
                Some(Err(error)) if error.kind() == ErrorKind::NoQuorum && !error.is_lasting() => error,
                Some(looked) => return looked,
                None => {
                    let text = format!("too few of {} nodes told in time how the lock is", nodes.len());
                    Error::new(ErrorKind::NoQuorum, text)
                }
            };
            if left().is_zero() && !wait.is_zero() {
                return Err(limit::timed_out(nodes, &self.id.key, error, self.checked.given, Instant::now()).await);
            }
            // The next version of the set is asked anew.
            if left().is_zero() || nodes.is_superseded() {
                return Err(error);
            }
            let _counted = self.this.waiting.begin();
            let asks_again = async {
                sleep(pause.min(left())).await;
                let _ = timeout(left(), nodes.majority_answers(&self.id.key)).await;
            };
            tokio::select! {
                biased;
                () = &mut gives_up => return Err(given_up()),
                () = nodes.closed() => return Err(Error::closed()),
                () = asks_again => pause = (pause * 2).min(AGAIN_MOST),
            }
        }
    }

    /// Looks for it once.
    async fn look(&self, slot: &Slot) -> Result<Option<Granted>, Error> {
        let mut held = slot.held.lock().await;
        if held.is_none() {
            *held = finding::find(self.this, self.id, self.checked).await?;
        }
        match &mut *held {
            Some(holding) => self.extended(holding).await,
            None => Ok(None),
        }
    }

    /// It holds this already: if it is what it asks for, that is extended.
    async fn extended(&self, holding: &mut Holding) -> Result<Option<Granted>, Error> {
        if !is_same(holding.guard.lease().wanted(), self.take.wanted) {
            return Err(owned());
        }
        match extend(&holding.guard, self.this.nodes().len(), self.checked.ttl_ms, self.came.at).await {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Lost => return Ok(None),
            Err(error) => return Err(error),
        }
        if let Some((kept, keeper)) = self.take.keepalive {
            self.bind(holding, kept, keeper);
        }
        let (token, number) = (holding.tell(), holding.guard.number());
        Ok(Some(Granted { token, waited: Duration::ZERO, number }))
    }

    /// A lock that was taken just now.
    async fn keep(&self, slot: &Slot, taken: Taken) -> Result<Granted, Error> {
        // If this request is given up meanwhile, or is one too many, nobody is told of the lock.
        let mut give_back = GiveBack::new(self.this.nodes(), &taken.lease, self.checked);
        let guard = self.guard(taken)?;
        let mut held = slot.held.lock().await;
        if let Some(other) = held.as_mut().filter(|held| !held.guard.is_lost()) {
            // Another request of this owner was granted meanwhile: it has one grant.
            return self.extended(other).await?.ok_or_else(Error::lost);
        }
        let began = BootTime::from_us(
            (guard.valid_until().as_us() + margin_us(self.checked.ttl_ms))
                .saturating_sub(u64::from(self.checked.ttl_ms) * 1_000),
        );
        let waited = Duration::from_micros(began.us_since(self.came.at));
        let granted = Granted { token: guard.token(), waited, number: guard.number() };
        let told = vec![granted.token];
        let mut holding = Holding { told, guard, holds: 1, sequence: 0, keeper: None };
        if let Some((kept, keeper)) = self.take.keepalive {
            self.bind(&mut holding, kept, keeper);
        }
        *held = Some(holding);
        give_back.disarm();
        Ok(granted)
    }

    fn guard(&self, taken: Taken) -> Result<Guard, Error> {
        let (thread, nodes) = (self.this.client.thread()?, Arc::clone(&taken.nodes));
        let (shared, orders, lease) = renewer::start(taken, self.checked, None, None);
        Ok(Guard::new(thread, &nodes, lease, shared, orders, self.checked))
    }

    /// It is extended as long as the keeper is there.
    fn bind(&self, holding: &mut Holding, kept: Duration, keeper: Keeper) {
        if let Some(before) = holding.keeper.replace(keeper) {
            self.this.table.keeps_no_more(before, self.id);
        }
        self.this.table.keeps(keeper, self.id);
        holding.guard.keep(Some(Auto { until: clock::after(kept), ttl_ms: self.checked.ttl_ms }));
    }
}

/// Extends it until it is valid for `ttl_ms` from `came` on, less the margin.
pub async fn extend(guard: &Guard, nodes: usize, ttl_ms: u32, came: BootTime) -> Result<(), Error> {
    let until = came.plus_us((u64::from(ttl_ms) * 1_000).saturating_sub(margin_us(ttl_ms)));
    for n in 0..EXTENDED_TIMES {
        match guard.extend_to(ttl_ms).await {
            Ok(()) => {}
            // Nodes whose token is being raised, by another process too, take part in the next round.
            Err(error) if error.kind() == ErrorKind::NoQuorum && !too_many_away(&error, nodes) => {
                sleep(AGAIN * 2_u32.pow(n)).await;
                continue;
            }
            Err(error) => return Err(error),
        }
        if guard.valid_until() >= until {
            return Ok(());
        }
    }
    if clock::boot_now() >= until {
        return Err(Error::new(ErrorKind::Expired, "the nodes extended it so late that nothing of the lease is left"));
    }
    Err(changes_meet())
}

/// Returns the refusal of a change that others of the same lock came between each time.
pub fn changes_meet() -> Error {
    Error::new(ErrorKind::NoQuorum, "other changes of it were under way on the nodes: try again")
}

/// Whether no majority of so many nodes answers.
fn too_many_away(error: &Error, nodes: usize) -> bool {
    error.nodes().iter().filter(|node| node.why != Why::NotHeld).count() > nodes - majority(nodes)
}

/// Whether who holds it in the one mode may have meant the other; a permit's number need not be named.
fn is_same(held: Wanted, wanted: Wanted) -> bool {
    match (held, wanted) {
        (Wanted::Permit { limit: one, number: held }, Wanted::Permit { limit: other, number }) => {
            one == other && number.is_none_or(|_| number == held)
        }
        (held, wanted) => held == wanted,
    }
}

/// The owner does not wait any more: for its request that is as if somebody else had the lock.
fn given_up() -> Error {
    Error::new(ErrorKind::Contended, "the owner gave it back meanwhile")
}

fn owned() -> Error {
    Error::new(ErrorKind::Owned, "this owner holds the lock already")
}
