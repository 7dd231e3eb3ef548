//! The locks that runs of Terraform hold through this agent. They are extended until they are unlocked, also by the next
//! agent with the same file.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::limits::{
    TERRAFORM_EXTEND_AGAIN, TERRAFORM_EXTEND_EVERY, TERRAFORM_LEASE_MAX, TERRAFORM_LEASE_UNTOLD, TERRAFORM_LOCKS_MAX,
};
use crate::state::State;

/// The number of extensions in the length of a lease.
const EXTENSIONS_A_LEASE: u32 = 3;

/// The locks that are kept, and the file with their names and ids.
#[derive(Debug)]
pub struct Kept {
    state: Arc<State>,
    tell: fn(&str),
    file: PathBuf,
    locks: Mutex<Locks>,
}

/// The locks by key.
type Locks = BTreeMap<String, Lock>;

/// A lock, which is no longer extended when this is dropped.
#[derive(Debug)]
struct Lock {
    id: String,
    _stop: oneshot::Sender<()>,
}

impl Kept {
    /// Continues the locks that `file` names, and checks that it can be written.
    ///
    /// # Errors
    /// The file cannot be read or written; the error is one line that says why.
    pub fn open(state: Arc<State>, tell: fn(&str), file: PathBuf) -> Result<Arc<Self>, String> {
        let of_file = |why: &dyn std::fmt::Display| format!("--http-locks {}: {why}", file.display());
        let ids: BTreeMap<String, String> = match fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|why| of_file(&format!("no list of locks: {why}; remove it once no Terraform runs")))?,
            Err(why) if why.kind() == ErrorKind::NotFound => BTreeMap::new(),
            Err(why) => return Err(of_file(&why)),
        };
        let kept = Arc::new(Self { state, tell, file: file.clone(), locks: Mutex::default() });
        let mut locks = kept.locks();
        for (key, id) in ids {
            let lock = kept.begin(&key, &id, Duration::ZERO);
            locks.insert(key, lock);
        }
        kept.store(&locks).map_err(|why| of_file(&why))?;
        drop(locks);
        Ok(kept)
    }

    fn locks(&self) -> MutexGuard<'_, Locks> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes all locks to the file. It is replaced in one step, so that no end of the process or machine leaves half of it.
    fn store(&self, locks: &Locks) -> io::Result<()> {
        let ids: BTreeMap<&str, &str> = locks.iter().map(|(key, lock)| (key.as_str(), lock.id.as_str())).collect();
        let mut new = self.file.clone().into_os_string();
        new.push(".new");
        let mut file = File::create(&new)?;
        file.write_all(&serde_json::to_vec(&ids)?)?;
        file.sync_all()?;
        fs::rename(&new, &self.file)?;
        // A file without a folder in its name is in the present one.
        let folder = self.file.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }

    /// Returns whether the lock of `key` can be kept in addition to the present ones.
    pub fn has_room(&self, key: &str) -> bool {
        let locks = self.locks();
        locks.len() < TERRAFORM_LOCKS_MAX || locks.contains_key(key)
    }

    /// Begins to extend the lock of `key`, until [`Kept::remove`] is called. The owner `id` holds it with a lease of
    /// length `lease`.
    ///
    /// # Errors
    /// The file cannot be written. The lock is not extended then.
    pub fn add(self: &Arc<Self>, key: &str, id: &str, lease: Duration) -> Result<(), String> {
        let mut locks = self.locks();
        let lock = self.begin(key, id, pause(lease));
        locks.insert(key.to_owned(), lock);
        self.store(&locks).map_err(|why| {
            locks.remove(key);
            format!("{} cannot be written: {why}", self.file.display())
        })
    }

    /// Stops extending the lock of `key`. Returns true if this agent extended it for the owner `id`; otherwise nothing
    /// changes.
    pub fn remove(&self, key: &str, id: &str) -> bool {
        let mut locks = self.locks();
        let was_kept = locks.get(key).is_some_and(|lock| lock.id == id);
        if was_kept {
            locks.remove(key);
            if let Err(why) = self.store(&locks) {
                (self.tell)(&format!("{} cannot be written: {why}", self.file.display()));
            }
        }
        was_kept
    }

    /// Returns whether the owner `id` holds the lock of `key` for a run of Terraform, so that the next agent continues it.
    pub fn has(&self, key: &[u8], id: &[u8]) -> bool {
        let key = std::str::from_utf8(key);
        key.is_ok_and(|key| self.locks().get(key).is_some_and(|lock| lock.id.as_bytes() == id))
    }

    /// Begins to extend a lock after this pause.
    fn begin(self: &Arc<Self>, key: &str, id: &str, first: Duration) -> Lock {
        let (stop, stopped) = oneshot::channel();
        tokio::spawn(Arc::clone(self).extend(key.to_owned(), id.to_owned(), first, stopped));
        Lock { id: id.to_owned(), _stop: stop }
    }

    /// Extends a lock until it is `stopped` or lost, or the agent ends.
    async fn extend(self: Arc<Self>, key: String, id: String, first: Duration, mut stopped: oneshot::Receiver<()>) {
        let mut next = first;
        loop {
            tokio::select! {
                biased;
                _ = &mut stopped => return,
                () = self.state.ended() => return,
                () = sleep(next) => {}
            }
            let lease = lease(&self.state).await;
            next = match self.state.locks.extend(key.as_bytes(), id.as_bytes(), lease, None).await {
                Ok(Some(_)) => pause(lease),
                Ok(None) => {
                    if self.remove(&key, &id) {
                        (self.tell)(&format!(
                            "{key} is lost: Terraform's run {id} holds it on no majority of the nodes"
                        ));
                    }
                    return;
                }
                Err(_) => TERRAFORM_EXTEND_AGAIN,
            };
        }
    }
}

/// Returns the length of a lease: the longest that the nodes allow, up to a limit. A longer lease outlasts a longer
/// absence of the agent.
pub async fn lease(state: &State) -> Duration {
    let longest = state.nodes_soon().await.and_then(Result::ok).and_then(|nodes| nodes.max_ttl);
    longest.unwrap_or(TERRAFORM_LEASE_UNTOLD).min(TERRAFORM_LEASE_MAX)
}

/// Returns the pause before a lease of this length is extended.
fn pause(lease: Duration) -> Duration {
    (lease / EXTENSIONS_A_LEASE).min(TERRAFORM_EXTEND_EVERY)
}
