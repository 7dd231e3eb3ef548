//! Sends changes to replicas and the AOF.

use std::ffi::{CStr, c_char};

use super::api::api;
use super::context::Context;
use super::string::KeyName;

impl Context<'_> {
    /// Sends the command that is being run, unchanged, to the replicas and the AOF. Any other way takes several times
    /// as long. Returns false in a timer or an event, where there is no command.
    pub fn replicate_command(self) -> bool {
        if self.has_command() {
            // SAFETY: the context is live for the call and has a command.
            unsafe { api!(RedisModule_ReplicateVerbatim(self.raw())) };
        }
        self.has_command()
    }

    /// Counts one change of the data towards the next RDB file, if there is no replica and no AOF. The functions that
    /// send a change count it too, but take far longer. Returns false in a timer or an event, where there is no
    /// command.
    pub fn count_change(self) -> bool {
        // The server counts the command but sends it nowhere, as there is no receiver.
        self.replicate_command()
    }

    /// Sends `command key payload` to the replicas and the AOF.
    pub fn replicate_record(self, command: &'static CStr, key: KeyName<'_>, payload: &[u8]) {
        // SAFETY: the context is live for the call; the format announces a module string and a buffer with its length,
        // which follow and outlive the call.
        unsafe {
            api!(RedisModule_Replicate(
                self.raw(),
                command.as_ptr(),
                c"sb".as_ptr(),
                key.raw(),
                payload.as_ptr(),
                payload.len()
            ))
        };
    }

    /// Sends `DEL key` to the replicas and the AOF.
    pub fn replicate_del(self, key: KeyName<'_>) {
        // SAFETY: the context is live for the call; the format announces a module string, which follows.
        unsafe { api!(RedisModule_Replicate(self.raw(), c"DEL".as_ptr(), c"s".as_ptr(), key.raw())) };
    }

    /// Sends the command `command one other option text`, made of these arguments, to the replicas, but not to the AOF.
    /// If the text is empty, `option text` is left out.
    pub fn replicate_to_replicas(
        self,
        command: &'static CStr,
        one: u64,
        other: u64,
        option: &'static CStr,
        text: &str,
    ) {
        let (one, other) = (one as std::ffi::c_longlong, other as std::ffi::c_longlong);
        // SAFETY: the context is live; the format announces two long longs, a C string and a buffer with its length,
        // which follow and outlive the call, and that the AOF does not receive the command. Without a text the format
        // has only the numbers.
        unsafe {
            let format = if text.is_empty() { c"llA" } else { c"llcbA" };
            api!(RedisModule_Replicate(
                self.raw(),
                command.as_ptr(),
                format.as_ptr(),
                one,
                other,
                option.as_ptr(),
                text.as_ptr().cast::<c_char>(),
                text.len()
            ))
        };
    }
}
