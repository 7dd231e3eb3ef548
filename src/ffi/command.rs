//! Commands: what the server is told about each, and how it calls them.

use std::ffi::{CStr, c_int};
use std::mem::ManuallyDrop;
use std::ptr::{null, null_mut};

use palisade_core::Refusal;

use super::api::{api, raw};
use super::boundary;
use super::context::Context;
use super::log::{c_text, warn};
use super::reply::{Reply, send, send_integer};
use super::string::{KeyName, string_bytes};

/// One command: what it is, and what it does.
pub trait Command {
    /// What the server, its clients and its documentation know of it.
    const SPEC: Spec;

    /// Does it.
    fn run(call: &Call<'_>) -> Result<Reply, Refusal>;
}

/// What is told about a command.
pub struct Spec {
    /// Its name.
    pub name: &'static CStr,
    /// What it does, in one line.
    pub summary: &'static CStr,
    /// Its cost.
    pub complexity: &'static CStr,
    /// The version it came with.
    pub since: &'static CStr,
    /// The server's flags for it.
    pub flags: &'static CStr,
    /// Who should be allowed to use it.
    pub acl: AclGroup,
    /// What it does with its key, the first argument; `None`: it has no key.
    pub key: Option<KeyAccess>,
    /// Its arguments after the key.
    pub arguments: &'static [Argument],
    /// Whether a replica must refuse it, also one that takes writes from clients.
    pub master_only: bool,
    /// Whether its answer promises something: then it is refused once a panic was caught, since nothing is certain any more.
    pub refused_when_poisoned: bool,
}

/// Who a command is for: becomes ACL categories where the server has them for modules.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum AclGroup {
    /// Those who use locks, and change them.
    Write,
    /// Those who look at locks.
    Read,
    /// Operators.
    Operator,
    /// Operators who look at the node as a whole.
    Admin,
    /// Everybody.
    Help,
}

impl AclGroup {
    /// The categories, without the module's own.
    fn categories(self) -> &'static str {
        match self {
            AclGroup::Write => "write fast",
            AclGroup::Read => "read fast",
            AclGroup::Operator => "write fast admin dangerous",
            AclGroup::Admin => "slow admin dangerous",
            AclGroup::Help => "fast",
        }
    }
}

/// What a command does with its key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum KeyAccess {
    /// Reads it.
    Read,
    /// Creates or changes it.
    Insert,
    /// Changes it.
    Update,
    /// Changes or deletes it.
    Delete,
}

impl KeyAccess {
    fn flags(self) -> u64 {
        use raw::*;
        u64::from(match self {
            KeyAccess::Read => REDISMODULE_CMD_KEY_RO | REDISMODULE_CMD_KEY_ACCESS,
            KeyAccess::Insert => REDISMODULE_CMD_KEY_RW | REDISMODULE_CMD_KEY_ACCESS | REDISMODULE_CMD_KEY_INSERT,
            KeyAccess::Update => REDISMODULE_CMD_KEY_RW | REDISMODULE_CMD_KEY_ACCESS | REDISMODULE_CMD_KEY_UPDATE,
            KeyAccess::Delete => REDISMODULE_CMD_KEY_RW | REDISMODULE_CMD_KEY_ACCESS | REDISMODULE_CMD_KEY_DELETE,
        })
    }
}

/// One argument, as hints and documentation show it.
pub struct Argument {
    /// What it is called.
    pub name: &'static CStr,
    /// The word that comes before its value; a pure token is only that word.
    pub token: Option<&'static CStr>,
    /// What kind of value it is.
    pub shape: Shape,
}

/// What kind of value an argument is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Any bytes.
    Bytes,
    /// A decimal integer.
    Integer,
    /// No value: the token alone.
    Token,
}

/// A command that is being run.
pub struct Call<'a> {
    /// The server.
    pub ctx: Context<'a>,
    argv: &'a [*mut raw::RedisModuleString],
    /// Where in `argv` the arguments after the key begin.
    after_key: usize,
}

impl<'a> Call<'a> {
    /// The key, for a command that has one.
    pub fn key(&self) -> KeyName<'a> {
        // SAFETY: the server keeps the arguments for the length of the call; arity says that there is one.
        unsafe { KeyName::new(self.argv[1]) }
    }

    /// Argument `n` after the command's key, or its name if it has none, counted from 0, if it was given.
    pub fn argument(&self, n: usize) -> Option<&'a [u8]> {
        // SAFETY: the server keeps the arguments for the length of the call.
        self.argv.get(self.after_key + n).map(|&argument| unsafe { string_bytes(argument) })
    }
}

/// The module's own ACL category.
const ACL_CATEGORY: &CStr = c"lock";

/// A command as it is registered.
pub struct Entry {
    /// What is told of it.
    pub spec: &'static Spec,
    trampoline: Trampoline,
}

/// How the server calls a command.
type Trampoline = extern "C" fn(*mut raw::RedisModuleCtx, *mut *mut raw::RedisModuleString, c_int) -> c_int;

impl Entry {
    /// That of command `C`.
    pub const fn of<C: Command>() -> Self {
        Self { spec: const { &C::SPEC }, trampoline: trampoline::<C> }
    }
}

/// Makes a command known to the server.
pub fn register(ctx: Context<'_>, entry: &Entry) -> Result<(), String> {
    let Entry { spec, trampoline } = *entry;
    let text = |name: &CStr| name.to_string_lossy().into_owned();
    let (first, last, step) = if spec.key.is_some() { (1, 1, 1) } else { (0, 0, 0) };
    // SAFETY: the module is being loaded; the strings are constants.
    let created = unsafe {
        api!(RedisModule_CreateCommand(
            ctx.raw(),
            spec.name.as_ptr(),
            Some(trampoline),
            spec.flags.as_ptr(),
            first,
            last,
            step
        ))
    };
    if created != raw::REDISMODULE_OK as c_int {
        return Err(format!("the server did not take the command {}: does another module have it?", text(spec.name)));
    }
    // SAFETY: as above.
    let command = unsafe { api!(RedisModule_GetCommand(ctx.raw(), spec.name.as_ptr())) };
    if command.is_null() || !describe(command, spec) {
        return Err(format!("the server did not take the description of {}", text(spec.name)));
    }
    categorise(command, spec);
    Ok(())
}

/// Makes the ACL category `lock` known where the server can (Redis 7.4, Valkey 8.0).
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
    let own = if add.is_some() { " lock" } else { "" };
    let blocking = if spec.flags.to_string_lossy().contains("blocking") { " blocking" } else { "" };
    let categories = c_text(&format!("{}{blocking}{own}", spec.acl.categories()));
    // SAFETY: the module is being loaded, the command is ours, the text outlives the call.
    if unsafe { set(command, categories.as_ptr()) } != raw::REDISMODULE_OK as c_int {
        warn(&format!("the server did not take the ACL categories {categories:?} of {:?}", spec.name));
    }
}

/// Tells the server what COMMAND DOCS and hints show.
fn describe(command: *mut raw::RedisModuleCommand, spec: &Spec) -> bool {
    static VERSION: raw::RedisModuleCommandInfoVersion = raw::RedisModuleCommandInfoVersion {
        version: 1,
        sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
        sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
        sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
    };
    let key_argument =
        spec.key.map(|_| raw_argument(c"key", None, raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY));
    let arguments = spec.arguments.iter().map(|argument| {
        let kind = match argument.shape {
            Shape::Bytes => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING,
            Shape::Integer => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER,
            Shape::Token => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN,
        };
        raw_argument(argument.name, argument.token, kind)
    });
    // Lists end with an entry of zeros.
    let mut arguments: Vec<_> = key_argument.into_iter().chain(arguments).chain([END_OF_ARGUMENTS]).collect();
    let mut key_specs = [raw_key_spec(spec.key), raw_key_spec(None)];
    let info = raw::RedisModuleCommandInfo {
        version: &raw const VERSION,
        summary: spec.summary.as_ptr(),
        complexity: spec.complexity.as_ptr(),
        since: spec.since.as_ptr(),
        history: null_mut(),
        tips: null(),
        arity: spec.arity(),
        key_specs: if spec.key.is_some() { key_specs.as_mut_ptr() } else { null_mut() },
        args: if arguments.len() > 1 { arguments.as_mut_ptr() } else { null_mut() },
    };
    // SAFETY: the command is ours, the module is being loaded; the server copies all that `info` points to.
    unsafe { api!(RedisModule_SetCommandInfo(command, &info)) == raw::REDISMODULE_OK as c_int }
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

fn raw_argument(
    name: &'static CStr,
    token: Option<&'static CStr>,
    kind: raw::RedisModuleCommandArgType,
) -> raw::RedisModuleCommandArg {
    let is_key = kind == raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY;
    raw::RedisModuleCommandArg {
        name: name.as_ptr(),
        type_: kind,
        key_spec_index: if is_key { 0 } else { -1 },
        token: token.map_or(null(), CStr::as_ptr),
        // What comes with a word may be left out.
        flags: if token.is_some() { raw::REDISMODULE_CMD_ARG_OPTIONAL as c_int } else { 0 },
        ..END_OF_ARGUMENTS
    }
}

/// The key is the first argument; without an access, the end of a list.
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
        flags: access.map_or(0, KeyAccess::flags),
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

impl Spec {
    /// Arguments that must be given, the command's name included; negative if there may be more.
    fn arity(&self) -> c_int {
        let (optional, required): (Vec<_>, Vec<_>) =
            self.arguments.iter().partition(|argument| argument.token.is_some());
        let least = 1 + c_int::from(self.key.is_some()) + required.len() as c_int;
        if optional.is_empty() { least } else { -least }
    }

    /// How it is typed, for HELP.
    pub fn syntax(&self) -> String {
        let mut line = self.name.to_string_lossy().into_owned();
        if self.key.is_some() {
            line.push_str(" key");
        }
        for Argument { name, token, shape } in self.arguments {
            let name = name.to_string_lossy();
            line.push_str(&match token.map(CStr::to_string_lossy) {
                None => format!(" {name}"),
                Some(token) if *shape == Shape::Token => format!(" [{token}]"),
                Some(token) => format!(" [{token} {name}]"),
            });
        }
        line
    }
}

extern "C" fn trampoline<C: Command>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the server's context lasts for the call, and its client is the one that sent the command.
    let ctx = unsafe { Context::of_command(ctx) };
    let mut is_decided = false;
    let run = || {
        if C::SPEC.master_only && !ctx.is_master() {
            return Err(Refusal::MasterOnly);
        }
        if C::SPEC.refused_when_poisoned && boundary::is_poisoned() {
            return Err(Refusal::Poisoned);
        }
        // SAFETY: the server hands over `argc` strings that last for the call.
        let argv = unsafe { std::slice::from_raw_parts(argv, argc as usize) };
        let after_key = const { if C::SPEC.key.is_some() { 2 } else { 1 } };
        C::run(&Call { ctx, argv, after_key })
    };
    // What is answered is sent from where it is put together: handed on it is copied piece by piece, which takes as long as a look at
    // the key. An integer, which nearly every answer is, has nothing to be dropped.
    boundary::run(C::SPEC.name, || {
        let answer = ManuallyDrop::new(run());
        is_decided = true;
        if let Ok(Reply::Integer(value)) = *answer {
            send_integer(ctx, value);
        } else {
            send(ctx, &answer);
            drop(ManuallyDrop::into_inner(answer));
        }
    });
    // A failure while an answer is being sent cannot be answered: it would be taken for the next command's.
    if !is_decided {
        boundary::run(C::SPEC.name, || send(ctx, &Err(Refusal::Panicked)));
    }
    raw::REDISMODULE_OK as c_int
}
