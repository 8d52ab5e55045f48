//! How long an engine has kept somebody waiting.

use super::Why;
use crate::sync::time::Instant;
use std::time::Duration;

/// Begins when it is first looked at, so that an engine which answers in time costs no look at the clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wait(Option<Instant>);

impl Wait {
    /// Checks that less than `limit` has passed.
    ///
    /// # Errors
    /// [`Why::Stalled`].
    #[inline]
    pub fn check(&mut self, during: &'static str, limit: Duration) -> Result<(), Why> {
        if self.0.get_or_insert_with(Instant::now).elapsed() < limit {
            Ok(())
        } else {
            Err(Why::stalled(during, limit))
        }
    }
}
