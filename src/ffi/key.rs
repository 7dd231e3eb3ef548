//! Opens the server's keys, and reads, stores and deletes values of the module in them.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem::replace;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;

use palisade_core::{Gate, Lock};

use super::api::{api, raw};
use super::context::Context;
use super::string::KeyName;
use super::value::Value;
use super::{freeing, value};

/// The value whose key the module itself is deleting. Only the main thread sets it, because keys are deleted there. It
/// is no thread-local, because that would cost more, and every command reads it.
static DELETING: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Returns whether the module itself deletes the key that is being unlinked.
pub(super) fn is_deleting() -> bool {
    !DELETING.load(Relaxed).is_null()
}

thread_local! {
    /// True on the thread on which the module is deleting the key that has the value [`DELETING`].
    static DELETES: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether [`ValueKey::delete`], which is running on this thread, will free `value`. Then the server's callback
/// must not free it.
pub(super) fn leaves_freeing<V>(value: NonNull<V>) -> bool {
    let is_left = DELETING.load(Relaxed) == value.as_ptr().cast() && DELETES.get();
    if is_left {
        DELETES.set(false);
    }
    is_left
}

/// The key holds something of another type.
#[derive(Debug)]
pub struct OtherType;

/// An open key that is free or holds a lock.
pub type LockKey<'a> = ValueKey<'a, Lock>;

/// An open key that does not exist or holds a gate.
pub type GateKey<'a> = ValueKey<'a, Gate>;

/// An open key that is free or holds a value of the module.
///
/// Opening, storing and deleting can call the module back, as when a key that expired by itself is unlinked. So the
/// caller must not borrow the node's state meanwhile.
pub struct ValueKey<'a, V: Value> {
    ctx: Context<'a>,
    name: KeyName<'a>,
    /// The server's key; null for an absent key that was opened for reading.
    raw: *mut raw::RedisModuleKey,
    value: Option<NonNull<V>>,
    /// True if the key was absent when it was opened, so that it has no expiry.
    is_new: bool,
}

impl<'a, V: Value> ValueKey<'a, V> {
    /// Opens a key to read its value.
    #[inline(always)]
    pub fn read(ctx: Context<'a>, name: KeyName<'a>) -> Result<Self, OtherType> {
        Self::open(ctx, name, raw::REDISMODULE_READ)
    }

    /// Opens a key to store, change or delete its value.
    #[inline(always)]
    pub fn write(ctx: Context<'a>, name: KeyName<'a>) -> Result<Self, OtherType> {
        Self::open(ctx, name, raw::REDISMODULE_READ | raw::REDISMODULE_WRITE)
    }

    // Inlined so that the key is created in place instead of being copied.
    #[inline(always)]
    fn open(ctx: Context<'a>, name: KeyName<'a>, mode: u32) -> Result<Self, OtherType> {
        // SAFETY: context and name are live for 'a.
        let raw = unsafe { api!(RedisModule_OpenKey(ctx.raw(), name.raw(), mode as c_int)) };
        let mut key = Self { ctx, name, raw, value: None, is_new: false };
        if raw.is_null() {
            return Ok(key);
        }
        // SAFETY: the key is open; a module value of our type is one that `put` or the loader made.
        unsafe {
            match api!(RedisModule_KeyType(raw)) as isize {
                raw::REDISMODULE_KEYTYPE_EMPTY => {}
                raw::REDISMODULE_KEYTYPE_MODULE if api!(RedisModule_ModuleTypeGetType(raw)) == value::handle::<V>() => {
                    key.value = NonNull::new(api!(RedisModule_ModuleTypeGetValue(raw)).cast());
                }
                _ => return Err(OtherType),
            }
        }
        Ok(key)
    }

    /// Returns the name with which the key was opened.
    pub fn name(&self) -> KeyName<'a> {
        self.name
    }

    /// Returns the database of an existing key. (In a transaction, Valkey 9.1 may call back about a key of another
    /// database, with a context that names the client's database. Then [`Context::db`] would be wrong.)
    pub fn db(&self) -> u32 {
        // SAFETY: the key is open, or null: then the server says -1.
        let db = unsafe { api!(RedisModule_GetDbIdFromModuleKey(self.raw)) };
        u32::try_from(db).unwrap_or(0)
    }

    /// Returns the key's value, if it has one.
    pub fn value(&self) -> Option<&V> {
        // SAFETY: the value lives while the key is open and not deleted; `delete` clears this pointer.
        self.value.map(|value| unsafe { value.as_ref() })
    }

    /// Returns the key's value, if it has one, to change it in place.
    pub fn value_mut(&mut self) -> Option<&mut V> {
        // SAFETY: the value lives while the key is open and not deleted; the server runs one command at a time, and
        // `&mut self` keeps out any other reference of ours.
        self.value.map(|mut value| unsafe { value.as_mut() })
    }

    /// Stores `next` in the key, in place of its content.
    #[inline(always)]
    pub fn put(&mut self, next: Box<V>) {
        if let Some(value) = self.value_mut() {
            freeing::free_value(Box::new(value.replaced_by(*next)));
            return;
        }
        let value = value::give(next);
        let handle = value::handle::<V>();
        // SAFETY: the key is open for writing; the value is on the heap, and the server owns it from here on.
        let status = unsafe { api!(RedisModule_ModuleTypeSetValue(self.raw, handle, value.as_ptr().cast::<c_void>())) };
        if status != raw::REDISMODULE_OK as c_int {
            // SAFETY: the server did not take it.
            unsafe { value::take_back(value) };
            panic!("the server did not take a value for a key open for writing");
        }
        (self.value, self.is_new) = (Some(value), true);
    }

    /// Removes an expiry that a client set on the key, because a value of the module ends only at its own deadline.
    pub fn clear_expiry(&mut self) {
        if self.is_new {
            return;
        }
        // SAFETY: the key is open for writing.
        unsafe {
            if api!(RedisModule_GetExpire(self.raw)) != raw::REDISMODULE_NO_EXPIRE.into() {
                api!(RedisModule_SetExpire(self.raw, raw::REDISMODULE_NO_EXPIRE.into()));
            }
        }
    }

    /// Deletes the key with its value, if it has one. Returns the value, unless the server frees it later.
    pub fn delete(&mut self) -> Option<Box<V>> {
        let value = self.value.take()?;
        DELETING.store(value.as_ptr().cast(), Relaxed);
        DELETES.set(true);
        // SAFETY: the key is open for writing.
        unsafe { api!(RedisModule_DeleteKey(self.raw)) };
        DELETING.store(null_mut(), Relaxed);
        let is_left = !DELETES.replace(false);
        // SAFETY: the server has freed it meanwhile, and it was left to this.
        is_left.then(|| unsafe { value::take_back(value) })
    }

    /// Closes the key before it is dropped. From then on it has a name, but neither a value nor a database.
    pub fn close(&mut self) {
        self.value = None;
        let raw = replace(&mut self.raw, null_mut());
        if !raw.is_null() {
            // SAFETY: opened by `open`, and closed only here: the pointer to it is gone.
            unsafe { api!(RedisModule_CloseKey(raw)) };
        }
    }

    /// Tells clients that WATCH or track the key that it has changed.
    pub fn signal_modified(&self) {
        self.ctx.signal_modified(self.name);
    }
}

impl LockKey<'_> {
    /// Returns the lock in the key, if there is one.
    pub fn lock(&self) -> Option<&Lock> {
        self.value()
    }

    /// Returns the lock in the key, if there is one, to change it in place.
    pub fn lock_mut(&mut self) -> Option<&mut Lock> {
        self.value_mut()
    }
}

impl<V: Value> Drop for ValueKey<'_, V> {
    fn drop(&mut self) {
        self.close();
    }
}
