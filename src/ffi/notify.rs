//! Key events that the module publishes.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::api::{api, raw};
use super::context::Context;
use super::string::KeyName;

/// The kind of the modules' own key events.
const KIND: i32 = raw::REDISMODULE_NOTIFY_MODULE;

/// True if the server has or had another module, which may subscribe: the server does not tell which modules do.
static HAS_OTHER_MODULES: AtomicBool = AtomicBool::new(true);

/// Asks the server for its other modules, while this one is being loaded and is not among them.
pub(super) fn look_for_other_modules(ctx: Context<'_>) {
    HAS_OTHER_MODULES.store(ctx.info_text(c"modules", c"module").is_some(), Relaxed);
}

/// Notes that the server has loaded another module.
pub(super) fn another_module_came() {
    HAS_OTHER_MODULES.store(true, Relaxed);
}

impl Context<'_> {
    /// Publishes `event` of `key` to subscribers of modules' key events. If there are none, the server is not called,
    /// because it takes as long to find that out as to look up a key (`make instructions`).
    pub fn notify(self, event: &'static CStr, key: KeyName<'_>) {
        // SAFETY: takes nothing.
        if HAS_OTHER_MODULES.load(Relaxed) || unsafe { api!(RedisModule_GetNotifyKeyspaceEvents()) } & KIND != 0 {
            // SAFETY: the context is live for the call, and so are the constant and the name.
            unsafe { api!(RedisModule_NotifyKeyspaceEvent(self.raw(), KIND, event.as_ptr(), key.raw())) };
        }
    }
}
