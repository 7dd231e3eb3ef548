//! The boundary that all calls from the server pass through, so that no panic reaches C.
//!
//! Unwinding into C would end the server. A panic is caught here, its text and place are logged, and the module is
//! *poisoned*: its work may be half done, so it grants nothing from then on, while releasing still works.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use super::log::warn;

static POISONED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The place in the code where the panic was raised that is being unwound. Only the panic hook knows it.
    static PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Returns whether a panic was caught since the module was loaded.
pub fn is_poisoned() -> bool {
    POISONED.load(Ordering::Relaxed)
}

/// Runs `body`. If it panics, logs that, poisons the module and returns `None`. `what` names the call in the log.
pub fn run<T>(what: &str, body: impl FnOnce() -> T) -> Option<T> {
    // The module's state may be left half done, and may be read afterwards: that is why the module is poisoned.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => Some(value),
        Err(payload) => {
            POISONED.store(true, Ordering::Relaxed);
            let place = PLACE.with_borrow_mut(std::mem::take);
            let text = payload_text(payload.as_ref());
            warn(&format!(
                "the lock module failed in {what} at {place}: {text}. It grants nothing from now on (errors say \
                 LOCKPANIC), releasing still works. Please report this line, then restart the server."
            ));
            None
        }
    }
}

/// Installs a panic hook that stores where a panic was raised, instead of printing it to the server's standard error.
pub fn install_hook() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
        PLACE.with_borrow_mut(|kept| *kept = place);
    }));
}

fn payload_text(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a text")
}
