//! Guards of one mode, async and blocking.

/// Declares a guard for one mode, with all methods of a guard and a release.
macro_rules! held {
    ($(#[$meta:meta])* $name:ident($guard:ty), release: $(#[$of_release:meta])* [$($asyncness:tt)?] [$($then:tt)*]) => {
        $(#[$meta])*
        #[derive(Debug)]
        #[must_use = "the lock is given back when its guard is dropped"]
        pub struct $name($guard);

        impl std::ops::Deref for $name {
            type Target = $guard;

            fn deref(&self) -> &$guard {
                &self.0
            }
        }

        impl From<$name> for $guard {
            /// Returns the same lock, for code that does not depend on its mode.
            fn from(guard: $name) -> Self {
                guard.0
            }
        }

        impl $name {
            $(#[$of_release])*
            pub $($asyncness)? fn release(self) -> crate::Released {
                self.0.release()$($then)*
            }
        }
    };
}

pub(crate) use held;
