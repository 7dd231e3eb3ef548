//! Two tasks of a client process in elections: one is a candidate, and writes to the register with its term while it leads; one observes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use palisade_client::Options;
use rand::RngExt;
use rand::rngs::ChaCha8Rng;
use tokio::time::{sleep, timeout};

use super::journal::{Line, now_us};
use super::process::Shared;
use super::register::{Access, Connection as Register};
use crate::history::{HeldAs, Holder};

/// The key of the register of election 0; the others follow.
pub const FIRST_KEY: u32 = 200;

/// So many elections.
pub const ELECTIONS: u32 = 2;

/// How often an observer looks whether it is to finish.
const LOOK: Duration = Duration::from_millis(200);

fn name(election: u32) -> String {
    format!("chaos:election:{election}")
}

/// Campaigns in one election after the other.
pub(super) async fn campaigns(shared: Arc<Shared>, mut dice: ChaCha8Rng, mut register: Register) {
    while !shared.is_to_finish() {
        let election = dice.random_range(0..ELECTIONS);
        let acquisition = shared.acquisitions.fetch_add(1, Ordering::Relaxed);
        let who = Holder { client: shared.settings.number, acquisition };
        let ttl = Duration::from_millis(dice.random_range(500..=shared.settings.max_ttl_ms));
        let wait = Duration::from_millis(dice.random_range(300..4_000));
        let options = Options::new().ttl(ttl).node_timeout(ttl / 5).wait(wait);
        shared.journal.write(&Line::Campaigns { at: now_us(), election, who });
        let campaign = shared.client.with(&options).election(name(election));
        let Ok(leadership) = campaign.campaign(value(who)).await else {
            sleep(Duration::from_millis(dice.random_range(20..200))).await;
            continue;
        };
        let term = leadership.term();
        shared.journal.write(&Line::Won { at: now_us(), election, who, term });
        let end = now_us() + dice.random_range(50..4_000) * 1_000;
        while now_us() < end && leadership.is_valid() && !shared.is_to_finish() {
            let access = |write| Access { key: FIRST_KEY + election, who, token: term, mode: HeldAs::Exclusive, write };
            let number = register.access(access(None)).await.expect("the register is there");
            sleep(Duration::from_millis(dice.random_range(0..40))).await;
            if let Some(number) = number.filter(|_| leadership.is_valid()) {
                register.access(access(Some(number + 1))).await.expect("the register is there");
            }
            if dice.random_ratio(1, 4) && leadership.proclaim(value(who)).await.is_ok() {
                shared.journal.write(&Line::Proclaimed { at: now_us(), who });
            }
            sleep(Duration::from_millis(dice.random_range(5..150))).await;
        }
        // Some only drop it.
        if dice.random_ratio(3, 4) {
            leadership.resign().await;
        }
        sleep(Duration::from_millis(dice.random_range(5..500))).await;
    }
}

/// What a candidate proclaims: who it is.
fn value(who: Holder) -> String {
    format!("{}.{}", who.client, who.acquisition)
}

/// Who proclaims this.
fn whose(value: &[u8]) -> Option<Holder> {
    let (client, acquisition) = std::str::from_utf8(value).ok()?.split_once('.')?;
    Some(Holder { client: client.parse().ok()?, acquisition: acquisition.parse().ok()? })
}

/// Observes one election, some time with each observation.
pub(super) async fn observes(shared: Arc<Shared>, mut dice: ChaCha8Rng) {
    while !shared.is_to_finish() {
        let election = dice.random_range(0..ELECTIONS);
        let acquisition = shared.acquisitions.fetch_add(1, Ordering::Relaxed);
        let observer = Holder { client: shared.settings.number, acquisition };
        let mut leaders = shared.client.election(name(election)).observe().expect("the client is open");
        let end = now_us() + dice.random_range(2_000..20_000) * 1_000;
        while now_us() < end && !shared.is_to_finish() {
            let Ok(told) = timeout(LOOK, leaders.changed()).await else { continue };
            let Some(leader) = told.expect("the client is open") else { continue };
            let (at, term, sequence) = (now_us(), leader.term, leader.sequence);
            let line = match whose(&leader.value) {
                Some(leader) => Line::Observed { at, election, observer, leader, term, sequence },
                None => Line::Wrong { at, what: format!("nobody proclaims {:?}", leader.value) },
            };
            shared.journal.write(&line);
        }
    }
}
