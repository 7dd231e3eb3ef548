//! How a campaign waits for what must come about.

use std::time::Duration;

/// How long anything may take that must happen: only reached when something is wrong.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Pause between two looks.
pub const LOOK: Duration = Duration::from_millis(20);

/// Looks again and again until something is there, for so long; `None`: it did not come about. (No function: the future of an async closure
/// is not known to be `Send`.)
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

/// The same for something that is so or not.
macro_rules! comes_true {
    ($limit:expr, $look:expr) => {
        $crate::campaign::patience::until!($limit, ($look).then_some(())).is_some()
    };
}

pub(crate) use {comes_true, until};
