//! Commands: their registration with the server, and how it calls them.

use std::ffi::{CStr, CString, c_char, c_int};
use std::mem::ManuallyDrop;
use std::ptr::{null, null_mut};

use palisade_core::Refusal;
use palisade_core::grammar::{self, Argument, KeyAccess, Shape};

use super::api::{api, raw};
use super::boundary;
use super::context::Context;
use super::inner::Inner;
use super::log::{c_text, warn};
use super::reply::{Reply, send, send_integer};
use super::string::{KeyName, string_bytes};

/// A command: its description, and its action.
pub trait Command {
    /// The description of the command, for the server and for COMMAND DOCS.
    const SPEC: Spec;

    /// Runs the command, and returns its reply or refusal.
    fn run(call: &Call<'_>) -> Result<Reply, Refusal>;
}

/// The description of a command.
pub struct Spec {
    /// The name, arguments and summary.
    pub command: grammar::Spec,
    /// The complexity that COMMAND DOCS shows, such as "O(1)".
    pub complexity: &'static str,
    /// The module's version in which the command first appeared.
    pub since: &'static str,
    /// The kind of clients that should be allowed to use the command.
    pub acl: AclGroup,
    /// True if a replica has to refuse the command, even a replica that accepts writes from clients.
    pub master_only: bool,
    /// True if the command's answer promises something. Once a panic was caught, such a command is refused, because the
    /// module's state may be half done.
    pub refused_when_poisoned: bool,
}

impl Spec {
    /// Describes a command that replicas answer too, and that promises nothing.
    pub const fn new(command: grammar::Spec, acl: AclGroup, since: &'static str, complexity: &'static str) -> Self {
        Self { command, complexity, since, acl, master_only: false, refused_when_poisoned: false }
    }

    /// Returns this description, changed to that of a command which only masters answer.
    pub const fn master_only(self) -> Self {
        Self { master_only: true, ..self }
    }

    /// Returns this description, changed to that of a command which a poisoned node refuses, because its answer
    /// promises something.
    pub const fn refused_when_poisoned(self) -> Self {
        Self { refused_when_poisoned: true, ..self }
    }
}

/// The kind of clients that a command is for. If the server has ACL categories for modules, each kind stands for one or
/// more.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum AclGroup {
    /// Clients that use locks, and change them.
    Write,
    /// Clients that write data behind a gate. They are apart from `Write`, because a client that uses locks need not be
    /// allowed to touch data.
    Gate,
    /// Clients that read locks, and change nothing.
    Read,
    /// Operators, for commands about single locks.
    Operator,
    /// Operators who inspect the node as a whole, and not single locks.
    Admin,
    /// All clients, whatever else they may do.
    Help,
}

impl AclGroup {
    /// Returns the server's own ACL categories for this kind, without the module's category `lock`.
    fn categories(self) -> &'static str {
        match self {
            AclGroup::Write => "write fast",
            AclGroup::Gate => "write slow",
            AclGroup::Read => "read fast",
            AclGroup::Operator => "write fast admin dangerous",
            AclGroup::Admin => "slow admin dangerous",
            AclGroup::Help => "fast",
        }
    }
}

/// Returns the server's flags for what a command does with its key.
fn key_flags(access: KeyAccess) -> u64 {
    use raw::*;
    u64::from(match access {
        KeyAccess::Read => REDISMODULE_CMD_KEY_RO | REDISMODULE_CMD_KEY_ACCESS,
        KeyAccess::Insert => REDISMODULE_CMD_KEY_RW | REDISMODULE_CMD_KEY_ACCESS | REDISMODULE_CMD_KEY_INSERT,
        KeyAccess::Update => REDISMODULE_CMD_KEY_RW | REDISMODULE_CMD_KEY_ACCESS | REDISMODULE_CMD_KEY_UPDATE,
        KeyAccess::Delete => REDISMODULE_CMD_KEY_RW | REDISMODULE_CMD_KEY_ACCESS | REDISMODULE_CMD_KEY_DELETE,
    })
}

/// A command that the server is running, with its arguments.
pub struct Call<'a> {
    /// The server, as the command may use it.
    pub ctx: Context<'a>,
    argv: &'a [*mut raw::RedisModuleString],
    /// The index in `argv` of the first argument after the key.
    after_key: usize,
}

impl<'a> Call<'a> {
    /// Returns the name of the command, as it was sent.
    pub fn name(&self) -> KeyName<'a> {
        // SAFETY: the server keeps the arguments for the length of the call; the first one is the name.
        unsafe { KeyName::new(self.argv[0]) }
    }

    /// Returns the name of the command's key. Only for a command that has one.
    pub fn key(&self) -> KeyName<'a> {
        // SAFETY: the server keeps the arguments for the length of the call; arity says that there is one.
        unsafe { KeyName::new(self.argv[1]) }
    }

    /// Iterates over the arguments after the command's key, or after its name if it has no key.
    #[inline(always)]
    pub fn words(&self) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
        // SAFETY: the server keeps the arguments for the length of the call.
        self.argv[self.after_key..].iter().map(|&argument| unsafe { string_bytes(argument) })
    }

    /// Returns the command that begins at word `n` after this command's key: its name and its arguments.
    pub fn inner(&self, n: usize) -> Inner<'a> {
        Inner::new(self.ctx, self.argv, self.after_key + n)
    }
}

/// The module's own ACL category.
const ACL_CATEGORY: &CStr = c"lock";

/// All that is needed to register a command.
pub struct Entry {
    /// The description of the command.
    pub spec: &'static Spec,
    trampoline: Trampoline,
}

/// The function by which the server calls a command.
type Trampoline = extern "C" fn(*mut raw::RedisModuleCtx, *mut *mut raw::RedisModuleString, c_int) -> c_int;

impl Entry {
    /// Returns the entry of command `C`.
    pub const fn of<C: Command>() -> Self {
        Self { spec: const { &C::SPEC }, trampoline: trampoline::<C> }
    }
}

/// Registers a command with the server.
pub fn register(ctx: Context<'_>, entry: &Entry) -> Result<(), String> {
    let Entry { spec, trampoline } = *entry;
    let (name, flags) = (c_text(spec.command.name), c_text(spec.command.flags));
    let (first, last, step) = if spec.command.key.is_some() { (1, 1, 1) } else { (0, 0, 0) };
    // SAFETY: the module is being loaded; the server copies the strings.
    let created = unsafe {
        api!(RedisModule_CreateCommand(ctx.raw(), name.as_ptr(), Some(trampoline), flags.as_ptr(), first, last, step))
    };
    if created != raw::REDISMODULE_OK as c_int {
        return Err(format!("the server did not take the command {}: does another module have it?", spec.command.name));
    }
    // SAFETY: as above.
    let command = unsafe { api!(RedisModule_GetCommand(ctx.raw(), name.as_ptr())) };
    if command.is_null() || !describe(command, spec) {
        return Err(format!("the server did not take the description of {}", spec.command.name));
    }
    categorise(command, spec);
    Ok(())
}

/// Registers the ACL category `lock` if the server can (Redis 7.4, Valkey 8.0).
pub(super) fn add_acl_category(ctx: Context<'_>) {
    // SAFETY: the module is being loaded; the name is a constant.
    unsafe {
        if let Some(add) = raw::RedisModule_AddACLCategory
            && add(ctx.raw(), ACL_CATEGORY.as_ptr()) != raw::REDISMODULE_OK as c_int
        {
            warn("the server did not take the ACL category `lock`: rules with @lock will not work");
        }
    }
}

fn categorise(command: *mut raw::RedisModuleCommand, spec: &Spec) {
    // SAFETY: reads pointers that the server filled in.
    let (set, add) = unsafe { (raw::RedisModule_SetCommandACLCategories, raw::RedisModule_AddACLCategory) };
    let Some(set) = set else { return }; // Redis 7.0 has no categories for modules: docs/acl.md gives rules by name.
    let own = if add.is_some() && spec.acl != AclGroup::Gate { " lock" } else { "" };
    let blocking = if spec.command.flags.contains("blocking") { " blocking" } else { "" };
    let categories = c_text(&format!("{}{blocking}{own}", spec.acl.categories()));
    // SAFETY: the module is being loaded, the command is ours, the text outlives the call.
    if unsafe { set(command, categories.as_ptr()) } != raw::REDISMODULE_OK as c_int {
        warn(&format!("the server did not take the ACL categories {categories:?} of {}", spec.command.name));
    }
}

/// Registers the description that COMMAND DOCS shows.
fn describe(command: *mut raw::RedisModuleCommand, spec: &Spec) -> bool {
    static VERSION: raw::RedisModuleCommandInfoVersion = raw::RedisModuleCommandInfoVersion {
        version: 1,
        sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
        sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
        sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
    };
    let mut texts = Texts::default();
    let key = spec.command.key;
    let key_argument = key.map(|_| raw::RedisModuleCommandArg {
        name: c"key".as_ptr(),
        type_: raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY,
        key_spec_index: 0,
        ..END_OF_ARGUMENTS
    });
    let arguments = spec.command.arguments.iter().map(|argument| raw_argument(argument, &mut texts));
    // The server's lists end with an entry of zeros.
    let mut arguments: Vec<_> = key_argument.into_iter().chain(arguments).chain([END_OF_ARGUMENTS]).collect();
    let mut key_specs = [raw_key_spec(key), raw_key_spec(None)];
    let info = raw::RedisModuleCommandInfo {
        version: &raw const VERSION,
        summary: texts.add(spec.command.summary),
        complexity: texts.add(spec.complexity),
        since: texts.add(spec.since),
        history: null_mut(),
        tips: null(),
        arity: spec.command.arity(),
        key_specs: if key.is_some() { key_specs.as_mut_ptr() } else { null_mut() },
        args: if arguments.len() > 1 { arguments.as_mut_ptr() } else { null_mut() },
    };
    // SAFETY: the command is ours, the module is being loaded; the server copies all that `info` points to.
    unsafe { api!(RedisModule_SetCommandInfo(command, &info)) == raw::REDISMODULE_OK as c_int }
}

/// Texts converted to C strings, which live as long as this value.
#[derive(Default)]
struct Texts(Vec<CString>);

impl Texts {
    fn add(&mut self, text: &str) -> *const c_char {
        let text = c_text(text);
        let at = text.as_ptr();
        self.0.push(text);
        at
    }
}

const END_OF_ARGUMENTS: raw::RedisModuleCommandArg = raw::RedisModuleCommandArg {
    name: null(),
    type_: 0,
    key_spec_index: -1,
    token: null(),
    summary: null(),
    since: null(),
    flags: 0,
    deprecated_since: null(),
    subargs: null_mut(),
    display_text: null(),
};

fn raw_argument(argument: &Argument, texts: &mut Texts) -> raw::RedisModuleCommandArg {
    raw::RedisModuleCommandArg {
        name: texts.add(&argument.documented()),
        type_: match argument.shape {
            Shape::Bytes | Shape::Command => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING,
            Shape::Integer => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER,
            Shape::Word => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN,
        },
        token: argument.option.map_or(null(), |word| texts.add(word)),
        // Arguments with a word are optional.
        flags: match (argument.option, argument.shape) {
            (None, _) => 0,
            (Some(_), Shape::Command) => {
                (raw::REDISMODULE_CMD_ARG_OPTIONAL | raw::REDISMODULE_CMD_ARG_MULTIPLE) as c_int
            }
            (Some(_), _) => raw::REDISMODULE_CMD_ARG_OPTIONAL as c_int,
        },
        ..END_OF_ARGUMENTS
    }
}

/// Returns the server's description of a key that is the first argument. Without `access` it is the entry that ends a
/// list.
fn raw_key_spec(access: Option<KeyAccess>) -> raw::RedisModuleCommandKeySpec {
    use raw::*;
    let (begin_search_type, find_keys_type) = match access {
        Some(_) => (
            RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX,
            RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE,
        ),
        None => (0, 0),
    };
    RedisModuleCommandKeySpec {
        notes: null(),
        flags: access.map_or(0, key_flags),
        begin_search_type,
        bs: RedisModuleCommandKeySpec__bindgen_ty_1 {
            index: RedisModuleCommandKeySpec__bindgen_ty_1__bindgen_ty_1 { pos: 1 },
        },
        find_keys_type,
        fk: RedisModuleCommandKeySpec__bindgen_ty_2 {
            range: RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_1 { lastkey: 0, keystep: 1, limit: 0 },
        },
    }
}

extern "C" fn trampoline<C: Command>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the server's context lasts for the call, and its client is the one that sent the command.
    let ctx = unsafe { Context::of_command(ctx) };
    // SAFETY: the server hands over `argc` strings that last for the call.
    let argv = unsafe { std::slice::from_raw_parts(argv, argc as usize) };
    let after_key = const { if C::SPEC.command.key.is_some() { 2 } else { 1 } };
    let call = Call { ctx, argv, after_key };
    let mut is_decided = false;
    let run = || {
        if C::SPEC.master_only && !ctx.is_master() {
            return Err(Refusal::MasterOnly);
        }
        if C::SPEC.refused_when_poisoned && boundary::is_poisoned() {
            return Err(Refusal::Poisoned);
        }
        C::run(&call)
    };
    // The answer is sent where it is created. If it were returned, it would be copied in pieces, which takes as long as
    // finding the key. An integer, which nearly every answer is, has nothing to drop.
    boundary::run(C::SPEC.command.name, || {
        let answer = ManuallyDrop::new(run());
        is_decided = true;
        if let Ok(Reply::Integer(value)) = *answer {
            send_integer(ctx, value);
        } else {
            send(ctx, &answer);
            drop(ManuallyDrop::into_inner(answer));
        }
    });
    // If sending an answer fails, there is no error to send: the client would take it for the answer to its next
    // command.
    if !is_decided {
        boundary::run(C::SPEC.command.name, || send(ctx, &Err(Refusal::Panicked)));
    }
    raw::REDISMODULE_OK as c_int
}
