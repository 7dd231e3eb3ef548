//! Changes to a lock that its owner requests.

use std::time::Duration;

use palisade_quorum::{Ask, BootTime, Refusal, Wanted, limits::HOLDS_MAX, request::NoteSequence};
use tokio::time::timeout;

use super::earlier::Earlier;
use super::finding;
use super::owners::{ByOwner, checked_owner};
use super::table::{Holding, Id, Slot};
use super::views::Views;
use crate::api::guard::changes_meet;
use crate::run::checked::Checked;
use crate::values::clock;

use crate::{Error, ErrorKind, Released};

/// A change of a held lock, as its owner requests it.
#[derive(Clone)]
pub enum What {
    /// Releases one hold; with a `level`, all holds from that number on.
    Release { level: Option<u32> },
    /// Extends the lease to at least this length.
    Extend { ttl_ms: u32 },
    /// Adds one hold, or raises the number of holds to `level`; extends the lease to at least this length.
    Reenter { level: Option<u32>, ttl_ms: Option<u32> },
    /// Makes the owner a reader, if it is a writer.
    Share,
    /// Replaces the note, under this sequence number if there is one.
    Note { text: Vec<u8>, sequence: Option<u64> },
}

impl ByOwner {
    /// Releases one hold, or all holds from number `level` on, and returns how many are left. 0: the lock is released,
    /// and a majority of the nodes had it until now. `None`: no majority had it, or this owner does not hold it with
    /// this token; nodes that have it release it all the same. Without a token, this also ends the owner's waiting
    /// requests: their `take` returns `None`.
    ///
    /// # Errors
    /// `NoQuorum`: too few nodes report whether this owner held the lock. The text says whether the release was sent.
    /// If so, nodes that did not answer receive it as soon as they do.
    pub async fn release(
        &self,
        key: &[u8],
        owner: &[u8],
        level: Option<u32>,
        token: Option<u64>,
    ) -> Result<Option<u32>, Error> {
        self.change(key, owner, token, What::Release { level }).await.map(in_holds)
    }

    /// Extends the lease to at least `ttl` from the call on, and returns the lock's token. `None`: this owner does not hold
    /// the lock.
    ///
    /// # Errors
    /// `NoQuorum`: too few nodes extended it; the lock stays valid until its previous end.
    pub async fn extend(
        &self,
        key: &[u8],
        owner: &[u8],
        ttl: Duration,
        token: Option<u64>,
    ) -> Result<Option<u64>, Error> {
        self.change(key, owner, token, What::Extend { ttl_ms: in_ms(ttl) }).await
    }

    /// Adds one hold, or raises their number to `level`. Returns the number of holds.
    ///
    /// # Errors
    /// `NoQuorum`: too few nodes recorded the hold.
    pub async fn reenter(
        &self,
        key: &[u8],
        owner: &[u8],
        level: Option<u32>,
        ttl: Option<Duration>,
    ) -> Result<Option<u32>, Error> {
        self.change(key, owner, None, What::Reenter { level, ttl_ms: ttl.map(in_ms) }).await.map(in_holds)
    }

    /// Makes the writer a reader, and returns the lock's token. `None`: this owner does not hold the lock, or holds a permit.
    ///
    /// # Errors
    /// `NoQuorum`: too few nodes made it a reader.
    pub async fn share(&self, key: &[u8], owner: &[u8], token: Option<u64>) -> Result<Option<u64>, Error> {
        self.change(key, owner, token, What::Share).await
    }

    /// Replaces the note with `text`, unless a note with a larger sequence number is there. Returns the number of the
    /// note that is there afterwards.
    ///
    /// # Errors
    /// `NoQuorum`: too few nodes accepted the note.
    pub async fn note(
        &self,
        key: &[u8],
        owner: &[u8],
        text: &[u8],
        sequence: Option<u64>,
        token: Option<u64>,
    ) -> Result<Option<u64>, Error> {
        self.change(key, owner, token, What::Note { text: text.to_vec(), sequence }).await
    }

    async fn change(&self, key: &[u8], owner: &[u8], token: Option<u64>, what: What) -> Result<Option<u64>, Error> {
        let came = clock::boot_now();
        checked_owner(owner)?;
        let checked = self.of_another()?;
        let (id, earlier) = (Id { key: key.into(), owner: owner.into() }, Earlier::default());
        self.run(move |this| {
            let (id, what, earlier) = (id.clone(), what.clone(), earlier.clone());
            async move {
                let slot = this.table.slot(&id);
                let changed = Change { this: &this, id: &id, token, checked, came }.make(&slot, what).await;
                this.table.forget(&id, slot);
                earlier.or(changed)
            }
        })
        .await
    }
}

/// A change that an owner requests, with the time of the request.
pub struct Change<'a> {
    pub this: &'a ByOwner,
    pub id: &'a Id,
    pub token: Option<u64>,
    pub checked: Checked,
    pub came: BootTime,
}

impl Change<'_> {
    /// Makes the change. Returns the resulting holds, token or note number; `None` if this owner does not hold the
    /// lock.
    ///
    /// # Errors
    /// `NoQuorum`: too few nodes answered, or made the change. `BadArgument`: the lock has as many holds or notes as
    /// are possible.
    pub async fn make(&self, slot: &Slot, what: What) -> Result<Option<u64>, Error> {
        if let (What::Release { .. }, None) = (&what, self.token) {
            slot.gives_up.notify_waiters();
        }
        let mut held = slot.held().await;
        if let (What::Release { level: Some(1) }, None, None) = (&what, self.token, &*held) {
            return self.free(slot).await;
        }
        let mut other = None;
        let held = match (self.find(slot, &mut held, &mut other).await, &what) {
            (Err(error), What::Release { .. }) if error.kind() == ErrorKind::NoQuorum => {
                return Err(error.before_release());
            }
            (found, _) => found?,
        };
        let is_release = matches!(what, What::Release { .. });
        // Single nodes may have the grant that the request names.
        if is_release && held.as_ref().is_none_or(|held| !held.is(self.token)) {
            held.iter().for_each(|other| slot.remember(other));
            return self.free(slot).await;
        }
        match self.perform(held, &what).await {
            Err(error) if error.kind() == ErrorKind::Lost && is_release => {
                *held = None;
                // A majority does not have the lock, so it is not held, whatever the other nodes answer.
                Ok(self.free(slot).await.unwrap_or(None))
            }
            // A majority may have forgotten the lock after restarts, or another process may have extended it.
            Err(error) if error.kind() == ErrorKind::Lost => {
                if let Some(lost) = &*held {
                    slot.remember(lost);
                }
                *held = finding::find(self.this, self.id, slot, self.token, self.checked).await?;
                let again = self.perform(held, &what).await;
                again.map_err(|error| if error.kind() == ErrorKind::Lost { changes_meet() } else { error })
            }
            made => made,
        }
    }

    async fn perform(&self, held: &mut Option<Holding>, what: &What) -> Result<Option<u64>, Error> {
        let Some(holding) = held.as_mut().filter(|held| held.is(self.token)) else { return Ok(None) };
        holding.is_used = true;
        match what {
            What::Release { level } => self.release(held, *level).await,
            What::Extend { ttl_ms } => self.extend(holding, *ttl_ms).await,
            What::Reenter { level, ttl_ms } => self.reenter(holding, *level, *ttl_ms).await,
            What::Share => self.share(holding).await,
            What::Note { text, sequence } => self.note(holding, text, *sequence).await,
        }
    }

    /// Releases the grants that single nodes have of the lock, if no majority has it or this process does not know it.
    /// `Some(0)`: a majority had it after all.
    async fn free(&self, slot: &Slot) -> Result<Option<u64>, Error> {
        Ok(finding::free(self.this, self.id, slot, self.token, self.checked).await?.then_some(0))
    }

    /// Searches the nodes for the grant that the request is about, unless this process knows it already. Returns the place
    /// of the grant: if a connection keeps the one that is `held`, another one is only borrowed.
    async fn find<'h>(
        &self,
        slot: &Slot,
        held: &'h mut Option<Holding>,
        other: &'h mut Option<Holding>,
    ) -> Result<&'h mut Option<Holding>, Error> {
        let is_known = match held.as_mut() {
            Some(holding) => self.is_known(holding).await?,
            None => false,
        };
        if is_known {
            return Ok(held);
        }
        held.iter().for_each(|known| slot.remember(known));
        let place = if held.as_ref().is_some_and(|held| held.keeper.is_some()) { other } else { held };
        *place = finding::find(self.this, self.id, slot, self.token, self.checked).await?;
        Ok(place)
    }

    /// Returns whether the request is about the grant that this process knows. If the request names another token,
    /// another process may have raised the token, or acquired the lock for this owner once more.
    async fn is_known(&self, holding: &mut Holding) -> Result<bool, Error> {
        if holding.is(self.token) {
            return Ok(true);
        }
        let seen = self.views(Views::is_decided).await?.tokens_of(&holding.guard.lease().owner);
        holding.told.add(&seen);
        Ok(holding.is(self.token))
    }

    /// Returns the lock as each node shows it, once these views are `enough`.
    async fn views(&self, enough: impl Fn(&Views) -> bool) -> Result<Views, Error> {
        let views = Views::ask(self.this.nodes(), &self.id.key, None, self.checked.given, &enough).await;
        if enough(&views) { Ok(views) } else { Err(views.too_few()) }
    }

    async fn release(&self, held: &mut Option<Holding>, level: Option<u32>) -> Result<Option<u64>, Error> {
        let Some(holding) = held else { return Ok(None) };
        let level = level.unwrap_or(holding.holds);
        let left = holding.holds.min(level - 1);
        if left > 0 {
            let what = "answered that they gave holds back: ask again, with the same LEVEL";
            let lease = holding.guard.lease();
            lease.set_holds(left);
            holding.guard.send_to_majority(lease.release(level), what).await?;
            holding.holds = left;
            return Ok(Some(left.into()));
        }
        let released = holding.guard.give_back().await;
        if let Some(keeper) = holding.keeper {
            self.this.table.stop_keeping(keeper, self.id);
        }
        *held = None;
        match released {
            Released::Released => Ok(Some(0)),
            Released::PartlyUnreachable(nodes) => Err(Error::release_sent(nodes)),
            Released::StillHeld(_) => Ok(None),
            // The lease may have ended before the nodes received the release.
            Released::AlreadyExpired => Err(Error::lost()),
        }
    }

    async fn extend(&self, holding: &mut Holding, ttl_ms: u32) -> Result<Option<u64>, Error> {
        holding.guard.extend_until(ttl_ms, self.came).await?;
        Ok(Some(holding.give_token()))
    }

    async fn reenter(
        &self,
        holding: &mut Holding,
        level: Option<u32>,
        ttl_ms: Option<u32>,
    ) -> Result<Option<u64>, Error> {
        if let Some(ttl_ms) = ttl_ms {
            holding.guard.extend_until(ttl_ms, self.came).await?;
        }
        let holds = level.map_or(holding.holds + 1, |level| level.max(holding.holds));
        if holds > HOLDS_MAX {
            return Err(exhausted(&Refusal::HoldsExhausted));
        }
        let lease = holding.guard.lease();
        lease.set_holds(holds);
        holding.guard.send_to_majority(lease.reenter(holds), "took notice of the re-entry").await?;
        holding.holds = holds;
        Ok(Some(holds.into()))
    }

    async fn share(&self, holding: &mut Holding) -> Result<Option<u64>, Error> {
        match holding.guard.lease().wanted() {
            Wanted::Permit { .. } => return Ok(None),
            Wanted::Shared => {
                let shares = holding.guard.lease().command(Ask::Share);
                holding.guard.send_to_majority(shares, "have it as a reader's").await?;
            }
            // Other requests of this owner wait meanwhile. The nodes are asked again all the same.
            Wanted::Exclusive => timeout(self.checked.given.most(), holding.guard.share()).await.map_err(|_| {
                Error::new(ErrorKind::NoQuorum, "too few nodes have made its owner a reader so far: ask again")
            })??,
        }
        Ok(Some(holding.give_token()))
    }

    async fn note(&self, holding: &mut Holding, text: &[u8], sequence: Option<u64>) -> Result<Option<u64>, Error> {
        let sequence = match sequence {
            Some(sequence) => sequence,
            None => self.next_sequence(holding).await?,
        };
        let lease = holding.guard.lease();
        lease.set_note(text, sequence);
        let numbers = holding.guard.send_to_majority(lease.note(text, sequence), "took the note").await?;
        holding.sequence = numbers.into_iter().fold(holding.sequence, u64::max);
        Ok(Some(holding.sequence))
    }

    /// Returns the sequence number of the next note. Another process may have replaced the last note.
    async fn next_sequence(&self, holding: &Holding) -> Result<u64, Error> {
        let attempt = &*holding.guard.lease().owner;
        let is_held = |views: &Views| views.agreed().iter().any(|grant| *grant.attempt == *attempt);
        let views = self.views(|views| is_held(views) || views.is_decided()).await?;
        let seen = views.by_attempt().remove(attempt).unwrap_or_default();
        let last = seen.iter().map(|(_, grant)| grant.sequence).fold(holding.sequence, u64::max);
        NoteSequence::new(Some(last))
            .and_then(NoteSequence::next)
            .map(NoteSequence::get)
            .map_err(|_| exhausted(&Refusal::NotesExhausted))
    }
}

/// Converts the refusal of a node that has reached a maximum to an error.
fn exhausted(refusal: &Refusal) -> Error {
    Error::new(ErrorKind::BadArgument, refusal.to_string().trim_start_matches("ERR "))
}

/// Converts the result of a change to a number of holds.
fn in_holds(changed: Option<u64>) -> Option<u32> {
    changed.and_then(|holds| u32::try_from(holds).ok())
}

/// Converts the length of a lease to milliseconds.
fn in_ms(ttl: Duration) -> u32 {
    u32::try_from(ttl.as_millis()).unwrap_or(u32::MAX)
}
