//! What an owner does with a lock that it holds.

use std::time::Duration;

use palisade_quorum::{BootTime, Refusal, Wanted, limits::HOLDS_MAX, request::NoteSequence};

use super::owners::{ByOwner, checked_owner};
use super::table::{Holding, Id, Slot};
use super::views::Views;
use super::{finding, taking};
use crate::run::checked::Checked;
use crate::values::clock;

use crate::{Error, ErrorKind, Released};

/// What is to change.
#[derive(Clone)]
pub enum What {
    /// One hold less, or down to `level` - 1.
    Release { level: Option<u32> },
    /// To leases of this length.
    Extend { ttl_ms: u32 },
    /// One hold more, or at least `level`; with a lease of this length at least.
    Reenter { level: Option<u32>, ttl_ms: Option<u32> },
    /// A writer is a reader from now on.
    Share,
    /// A note, and its number if it has one.
    Note { text: Vec<u8>, sequence: Option<u64> },
}

impl ByOwner {
    /// Gives one hold back, or all down to a level, and tells how many are left; 0: a majority of the nodes had it until now. `None`: a
    /// majority did not have it, or this owner does not hold it with this token; what single nodes have of it is given back all the same.
    /// Without a token it also ends this owner's waiting (its `take` returns `None`).
    ///
    /// # Errors
    /// `NoQuorum`: too few nodes tell whether this owner held it. Its text says whether the release was sent; nodes that did not answer are
    /// told then as soon as they do.
    pub async fn release(
        &self,
        key: &[u8],
        owner: &[u8],
        level: Option<u32>,
        token: Option<u64>,
    ) -> Result<Option<u32>, Error> {
        self.change(key, owner, token, What::Release { level }).await.map(in_holds)
    }

    /// The lease lasts at least so long from when this was called; its token. `None`: this owner does not hold it.
    ///
    /// # Errors
    /// `NoQuorum`: too few nodes did, and the lock stays valid as long as it was.
    pub async fn extend(
        &self,
        key: &[u8],
        owner: &[u8],
        ttl: Duration,
        token: Option<u64>,
    ) -> Result<Option<u64>, Error> {
        self.change(key, owner, token, What::Extend { ttl_ms: in_ms(ttl) }).await
    }

    /// One hold more, or at least `level` of them; how many there are.
    ///
    /// # Errors
    /// `NoQuorum`: too few nodes took notice.
    pub async fn reenter(
        &self,
        key: &[u8],
        owner: &[u8],
        level: Option<u32>,
        ttl: Option<Duration>,
    ) -> Result<Option<u32>, Error> {
        self.change(key, owner, None, What::Reenter { level, ttl_ms: ttl.map(in_ms) }).await.map(in_holds)
    }

    /// Its writer is a reader from now on; its token. `None`: this owner does not hold it, or holds a permit.
    ///
    /// # Errors
    /// `NoQuorum`: too few nodes took notice.
    pub async fn share(&self, key: &[u8], owner: &[u8], token: Option<u64>) -> Result<Option<u64>, Error> {
        self.change(key, owner, token, What::Share).await
    }

    /// Puts `text` in the place of the note, unless one with a larger number is there; the number of the note that is there then.
    ///
    /// # Errors
    /// `NoQuorum`: too few nodes took it.
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
        let id = Id { key: key.into(), owner: owner.into() };
        self.run(move |this| {
            let (id, what) = (id.clone(), what.clone());
            async move {
                let slot = this.table.slot(&id);
                let changed = Change { this: &this, id: &id, token, checked, came }.make(&slot, what).await;
                this.table.forget(&id, slot);
                changed
            }
        })
        .await
    }
}

/// A request of an owner about what it holds, and when it came.
pub struct Change<'a> {
    pub this: &'a ByOwner,
    pub id: &'a Id,
    pub token: Option<u64>,
    pub checked: Checked,
    pub came: BootTime,
}

impl Change<'_> {
    /// Makes it. The holds or the token that there are then, or the number of the note; `None`: this owner does not hold it.
    ///
    /// # Errors
    /// `NoQuorum`.
    pub async fn make(&self, slot: &Slot, what: What) -> Result<Option<u64>, Error> {
        if let (What::Release { .. }, None) = (&what, self.token) {
            slot.gives_up.notify_waiters();
        }
        let mut held = slot.held.lock().await;
        let is_known = held.as_ref().is_some_and(|held| !held.guard.is_lost());
        if let (What::Release { level: Some(1) }, None, false) = (&what, self.token, is_known) {
            return self.free().await;
        }
        match (self.find(&mut held, is_known).await, &what) {
            (Err(error), What::Release { .. }) if error.kind() == ErrorKind::NoQuorum => {
                return Err(error.before_release());
            }
            (found, _) => found?,
        }
        let is_release = matches!(what, What::Release { .. });
        if is_release && held.is_none() {
            return self.free().await;
        }
        match self.perform(&mut held, &what).await {
            Err(error) if error.kind() == ErrorKind::Lost && is_release => {
                *held = None;
                // A majority does not have it, whatever the others say.
                Ok(self.free().await.unwrap_or(None))
            }
            // A majority may only have forgotten it, or another process has extended it.
            Err(error) if error.kind() == ErrorKind::Lost => {
                *held = finding::find(self.this, self.id, self.checked).await?;
                let again = self.perform(&mut held, &what).await;
                again.map_err(|error| if error.kind() == ErrorKind::Lost { taking::changes_meet() } else { error })
            }
            made => made,
        }
    }

    async fn perform(&self, held: &mut Option<Holding>, what: &What) -> Result<Option<u64>, Error> {
        let Some(holding) = held.as_mut().filter(|held| held.is(self.token)) else { return Ok(None) };
        match what {
            What::Release { level } => self.release(held, *level).await,
            What::Extend { ttl_ms } => self.extend(holding, *ttl_ms).await,
            What::Reenter { level, ttl_ms } => self.reenter(holding, *level, *ttl_ms).await,
            What::Share => self.share(holding).await,
            What::Note { text, sequence } => self.note(holding, text, *sequence).await,
        }
    }

    /// Gives back what nodes have of a lock that no majority has, or that is not known here.
    async fn free(&self) -> Result<Option<u64>, Error> {
        Ok(finding::free(self.this, self.id, self.token, self.checked).await?.then_some(0))
    }

    /// Looks for the lock on the nodes, unless it `is_known` here and the request is about that.
    async fn find(&self, held: &mut Option<Holding>, is_known: bool) -> Result<(), Error> {
        let is_known = match held.as_mut().filter(|_| is_known) {
            Some(holding) => self.knows(holding).await?,
            None => false,
        };
        if !is_known {
            *held = finding::find(self.this, self.id, self.checked).await?;
        }
        Ok(())
    }

    /// Whether the request is about what is known here. If it names a token that is not, another process may have raised that, or have taken
    /// the lock for this owner once more.
    async fn knows(&self, holding: &mut Holding) -> Result<bool, Error> {
        if holding.is(self.token) {
            return Ok(true);
        }
        let seen = self.views().await?.tokens_of(&holding.guard.lease().owner);
        holding.may_be_told(&seen);
        Ok(!seen.is_empty())
    }

    /// What the nodes have of the lock.
    async fn views(&self) -> Result<Views, Error> {
        let views = Views::ask(self.this.nodes(), &self.id.key, None, self.checked.given, Views::is_decided).await;
        if views.is_decided() { Ok(views) } else { Err(views.too_few()) }
    }

    async fn release(&self, held: &mut Option<Holding>, level: Option<u32>) -> Result<Option<u64>, Error> {
        let Some(holding) = held else { return Ok(None) };
        let left = level.map_or(holding.holds - 1, |level| holding.holds.min(level - 1));
        if left > 0 {
            if left < holding.holds {
                let what = "answered that they gave holds back: ask again, with the same LEVEL";
                holding.guard.tell_majority(holding.guard.lease().release(left + 1), what).await?;
                holding.holds = left;
            }
            return Ok(Some(left.into()));
        }
        let released = holding.guard.give_back().await;
        if let Some(keeper) = holding.keeper {
            self.this.table.keeps_no_more(keeper, self.id);
        }
        *held = None;
        match released {
            Released::Released => Ok(Some(0)),
            Released::PartlyUnreachable(nodes) => Err(Error::release_sent(nodes)),
            Released::StillHeld(_) => Ok(None),
            // Maybe before the nodes were told to free it.
            Released::AlreadyExpired => Err(Error::lost()),
        }
    }

    async fn extend(&self, holding: &mut Holding, ttl_ms: u32) -> Result<Option<u64>, Error> {
        taking::extend(&holding.guard, self.this.nodes().len(), ttl_ms, self.came).await?;
        Ok(Some(holding.tell()))
    }

    async fn reenter(
        &self,
        holding: &mut Holding,
        level: Option<u32>,
        ttl_ms: Option<u32>,
    ) -> Result<Option<u64>, Error> {
        if let Some(ttl_ms) = ttl_ms {
            taking::extend(&holding.guard, self.this.nodes().len(), ttl_ms, self.came).await?;
        }
        let holds = level.map_or(holding.holds + 1, |level| level.max(holding.holds));
        if holds > HOLDS_MAX {
            return Err(exhausted(&Refusal::HoldsExhausted));
        }
        holding.guard.tell_majority(holding.guard.lease().reenter(holds), "took notice of the re-entry").await?;
        holding.holds = holds;
        Ok(Some(holds.into()))
    }

    async fn share(&self, holding: &mut Holding) -> Result<Option<u64>, Error> {
        match holding.guard.lease().wanted() {
            Wanted::Permit { .. } => return Ok(None),
            Wanted::Shared => {}
            Wanted::Exclusive => holding.guard.share().await?,
        }
        Ok(Some(holding.tell()))
    }

    async fn note(&self, holding: &mut Holding, text: &[u8], sequence: Option<u64>) -> Result<Option<u64>, Error> {
        let sequence = match sequence {
            Some(sequence) => sequence,
            None => self.next_sequence(holding).await?,
        };
        let told = holding.guard.lease().note(text, sequence);
        let numbers = holding.guard.tell_majority(told, "took the note").await?;
        holding.sequence = numbers.into_iter().fold(holding.sequence, u64::max);
        Ok(Some(holding.sequence))
    }

    /// The number of the next note. Another process may have replaced the last one.
    async fn next_sequence(&self, holding: &Holding) -> Result<u64, Error> {
        let views = self.views().await?;
        let seen = views.by_attempt().remove(&*holding.guard.lease().owner).unwrap_or_default();
        let last = seen.iter().map(|(_, grant)| grant.sequence).fold(holding.sequence, u64::max);
        NoteSequence::new(Some(last))
            .and_then(NoteSequence::next)
            .map(NoteSequence::get)
            .map_err(|_| exhausted(&Refusal::NotesExhausted))
    }
}

/// What a node says where there are as many as can be.
fn exhausted(refusal: &Refusal) -> Error {
    Error::new(ErrorKind::BadArgument, refusal.to_string().trim_start_matches("ERR "))
}

/// A number of holds.
fn in_holds(changed: Option<u64>) -> Option<u32> {
    changed.and_then(|holds| u32::try_from(holds).ok())
}

/// A length of a lease, in milliseconds.
fn in_ms(ttl: Duration) -> u32 {
    u32::try_from(ttl.as_millis()).unwrap_or(u32::MAX)
}
