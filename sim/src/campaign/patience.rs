//! Waits for conditions in a campaign.

use std::time::Duration;

/// The longest wait for anything that must happen. A correct run never reaches it.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The pause between two checks.
pub const LOOK: Duration = Duration::from_millis(20);

/// Checks repeatedly until the expression is `Some`, for at most `$limit`; `None` at the limit. (This is a macro
/// because the future of an async closure is not known to be `Send`.)
macro_rules! until {
    ($limit:expr, $look:expr) => {{
        let begun = tokio::time::Instant::now();
        loop {
            let seen: Option<_> = $look;
            if seen.is_some() || begun.elapsed() > $limit {
                break seen;
            }
            tokio::time::sleep($crate::campaign::patience::LOOK).await;
        }
    }};
}

/// Waits like `until!`, for a condition of type `bool`.
macro_rules! comes_true {
    ($limit:expr, $look:expr) => {
        $crate::campaign::patience::until!($limit, ($look).then_some(())).is_some()
    };
}

pub(crate) use {comes_true, until};
