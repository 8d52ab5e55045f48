//! Closes descriptors on a thread that may block: those that clients pass, and the clients' own.
//!
//! Closing the last descriptor of a TCP socket with `SO_LINGER`, or of a file on a network file system, blocks. A client may pass one and
//! close its own. The kernel closes passed descriptors that are not received, in the call that receives the message without them or that
//! closes the client's socket.

use crate::threads::spawn;
use crossbeam_channel::{Sender, unbounded};
use std::io;

/// Waiting descriptors at which the server serves only root and its own user. A descriptor that never closes keeps it so.
pub(super) const WAITING_MAX: usize = 64;

/// The thread ends after this value, and is not waited for.
pub(super) struct Closer(Sender<Box<dyn Send>>);

impl Closer {
    pub(super) fn start() -> io::Result<Self> {
        let (sender, waiting) = unbounded::<Box<dyn Send>>();
        spawn("ctl-close", move || waiting.into_iter().for_each(drop))?;
        Ok(Self(sender))
    }

    pub(super) fn close(&self, owner: impl Send + 'static) {
        // The thread lasts as long as this value.
        let _ = self.0.send(Box::new(owner));
    }

    pub(super) fn is_full(&self) -> bool {
        self.0.len() >= WAITING_MAX
    }
}
