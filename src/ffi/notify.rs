//! Publishes key events of the module.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::api::{api, raw};
use super::context::Context;
use super::string::KeyName;

/// The kind of key events that modules publish.
const KIND: i32 = raw::REDISMODULE_NOTIFY_MODULE;

/// True if the server has or had another module, which may subscribe to key events: the server does not say which
/// modules do.
static HAS_OTHER_MODULES: AtomicBool = AtomicBool::new(true);

/// Finds out whether the server has other modules. Called while this one is being loaded and is not among them.
pub(super) fn find_other_modules(ctx: Context<'_>) {
    HAS_OTHER_MODULES.store(ctx.info_text(c"modules", c"module").is_some(), Relaxed);
}

/// Notes that the server has loaded another module.
pub(super) fn on_other_module() {
    HAS_OTHER_MODULES.store(true, Relaxed);
}

impl Context<'_> {
    /// Returns whether somebody may have subscribed to key events of modules (`d` in `notify-keyspace-events`, or another
    /// module). Publishing without receivers would take the server as long as to find a key (`make instructions`).
    #[inline]
    pub fn has_receivers_of_key_events(self) -> bool {
        // SAFETY: takes nothing.
        HAS_OTHER_MODULES.load(Relaxed) || unsafe { api!(RedisModule_GetNotifyKeyspaceEvents()) } & KIND != 0
    }

    /// Publishes `event` of `key` to those who subscribed to key events of modules. Another module may run commands
    /// meanwhile, also about this key.
    pub fn publish_key_event(self, event: &'static CStr, key: KeyName<'_>) {
        // SAFETY: the context is live for the call, and so are the constant and the name.
        unsafe { api!(RedisModule_NotifyKeyspaceEvent(self.raw(), KIND, event.as_ptr(), key.raw())) };
    }
}
