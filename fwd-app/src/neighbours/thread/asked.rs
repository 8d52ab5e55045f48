//! Requests of the control thread to the router's thread, which answers between two bursts; callers wait with a timeout.

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use fib::MacAddr;
use std::net::IpAddr;
use std::time::Duration;

/// Timeout of an answer, which usually takes about a millisecond.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) enum ToRouter {
    Neighbours(Sender<Vec<KnownNeighbour>>),
    /// Delete the entries of this address, or all. The answer is the number deleted.
    Forget(Option<IpAddr>, Sender<usize>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KnownNeighbour {
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
    pub(crate) mac: Option<MacAddr>,
    pub(crate) state: &'static str,
    /// The time since the MAC was learned or confirmed; without a MAC, since the first request.
    pub(crate) age: Duration,
}

/// The router has ended or is overloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the router does not answer")]
pub(crate) struct NoAnswer;

#[derive(Clone, Debug)]
pub(crate) struct RouterHandle(Sender<ToRouter>);

impl RouterHandle {
    pub(crate) fn new() -> (Self, Receiver<ToRouter>) {
        let (sender, receiver) = unbounded();
        (Self(sender), receiver)
    }

    /// All neighbours in the router's table, sorted by address and port.
    pub(crate) fn neighbours(&self) -> Result<Vec<KnownNeighbour>, NoAnswer> {
        let mut known = self.ask(ToRouter::Neighbours)?;
        known.sort_unstable_by_key(|neighbour| (neighbour.address, neighbour.port));
        Ok(known)
    }

    /// Deletes the entries of this address, or all. Returns the number deleted.
    pub(crate) fn forget(&self, address: Option<IpAddr>) -> Result<usize, NoAnswer> {
        self.ask(|answer| ToRouter::Forget(address, answer))
    }

    fn ask<A>(&self, question: impl FnOnce(Sender<A>) -> ToRouter) -> Result<A, NoAnswer> {
        let (sender, answer) = bounded(1);
        self.0.send(question(sender)).map_err(|_| NoAnswer)?;
        answer.recv_timeout(PATIENCE).map_err(|_| NoAnswer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_answered_in_order_or_not_at_all() {
        let (router, asked) = RouterHandle::new();
        let known = |last: u8| {
            let (address, mac) = (IpAddr::from([192, 0, 2, last]), Some(MacAddr([2; 6])));
            KnownNeighbour { address, port: 0, mac, state: "STALE", age: Duration::from_secs(3) }
        };
        let answers = std::thread::spawn(move || {
            for question in asked.iter().take(2) {
                match question {
                    ToRouter::Neighbours(answer) => answer.send(vec![known(9), known(1)]).unwrap(),
                    ToRouter::Forget(address, answer) => answer.send(address.iter().count()).unwrap(),
                }
            }
        });
        assert_eq!(router.neighbours(), Ok(vec![known(1), known(9)]));
        assert_eq!(router.forget(Some(known(1).address)), Ok(1));
        answers.join().unwrap();
        assert_eq!(router.forget(None), Err(NoAnswer), "it has ended");
    }
}
