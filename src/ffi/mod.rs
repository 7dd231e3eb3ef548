//! The wrapper of the server's C API: the only folder with `unsafe`.
//!
//! It wraps the server in safe functions and types. [`Context`] calls the server, [`KeyName`] and [`LockKey`] reach a
//! lock, and the rest of the module implements traits to be called back. Nothing here knows a rule of locks. All calls
//! from the server come through [`boundary`], which no panic passes. They come on the main thread, except for `free` of
//! the data type.
//!
//! The API's functions are pointers that the server fills in when the module is loaded. Functions that are newer than
//! the oldest supported server (Redis 7.0) may be absent. Their callers check that.

mod api;
mod blocked;
mod boundary;
mod bus;
mod call;
mod command;
mod config;
mod context;
mod data_type;
mod events;
mod freeing;
mod info;
mod inner;
mod key;
mod load;
mod log;
mod main_thread;
mod notify;
mod replication;
mod reply;
mod server_info;
mod slots;
mod string;
mod timers;
mod user;
mod value;

pub use blocked::{Blocked, BlockedClients};
pub use boundary::is_poisoned;
pub use bus::{BusEvents, Message, send};
pub use call::CallReply;
pub use command::{AclGroup, Call, Command, Entry, Spec, register as register_command};
pub use config::{
    ChoiceConfig, NumericConfig, TextConfig, register as register_config, register_choice, register_text,
};
pub use context::Context;
pub use data_type::{DataType, Digest, register as register_data_type};
pub use events::{Arrival, Events, Source, subscribe};
pub use freeing::{free, free_value, join_freed};
pub use info::{Field, InfoSection, register as register_info};
pub use inner::{CommandRules, Inner, InnerKey, NoKeys};
pub use key::{GateKey, LockKey, OtherType};
pub(crate) use load::entry_point;
pub use load::{EntryArguments, EntryContext, Module, on_load};
pub use log::{notice, warn};
pub use main_thread::MainThread;
pub use reply::Reply;
pub use server_info::server_version;
pub use slots::{Progress, SlotEvents};
pub use string::KeyName;
pub use timers::{TimerId, in_next_pass};
pub use user::User;
pub use value::in_memory;

/// The server's allocator, so that the server counts the module's memory as its own. Tests have no server, so they use
/// the system's.
#[cfg(not(test))]
#[global_allocator]
static ALLOCATOR: redis_module::alloc::RedisAlloc = redis_module::alloc::RedisAlloc;
