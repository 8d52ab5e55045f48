//! Our commands on DPDK's telemetry socket: `/fwd/stats`, `/fwd/engine`, `/fwd/routes`.
//!
//! DPDK calls a handler on a thread of its own. The handler passes the request to the control thread and waits for the answer.

use super::Steering;
use crate::control::ctl::Steer as _;
use crate::control::ctl::request::{Request, Show};
use crossbeam_channel::{Receiver, Sender, bounded};
use dpdk_ffi::telemetry::{Registration, register};
use dpdk_ffi::{DpdkError, Eal};
use serde_json::{Value, json};
use std::time::Duration;

/// The commands, what each shows, and its line of help.
const COMMANDS: [(&str, Show, &str); 3] = [
    ("/fwd/stats", Show::Stats, "Returns the forwarder's summary so far. No parameters"),
    ("/fwd/engine", Show::Engine, "Returns the engine in service and its table. No parameters"),
    ("/fwd/routes", Show::Fib, "Returns counts of routes, next hops and updates. No parameters"),
];
/// Requests that may wait. DPDK serves each client on its own thread.
const WAITING_MAX: usize = 8;
/// How long a client waits: the control thread may be building an engine.
const WAIT: Duration = Duration::from_secs(10);

/// A request and where its answer goes.
type Asked = (Show, Sender<Value>);

/// The registered commands, and requests that wait.
pub(crate) struct Telemetry {
    waiting: Receiver<Asked>,
    /// Taken back when this is dropped.
    _commands: Vec<Registration>,
}

impl Telemetry {
    /// Registers the commands.
    ///
    /// # Errors
    /// When DPDK refuses one.
    pub(crate) fn register(eal: &Eal) -> Result<Self, DpdkError> {
        let (sender, waiting) = bounded::<Asked>(WAITING_MAX);
        let command = |(name, show, help): (&str, Show, &str)| {
            let sender = sender.clone();
            register(eal, name, help, move |_| {
                let (reply, answer) = bounded(1);
                match sender.try_send((show, reply)) {
                    Ok(()) => {
                        answer.recv_timeout(WAIT).unwrap_or_else(|_| json!({ "error": "no answer in time" }))
                    }
                    Err(_) => json!({ "error": "too many requests wait" }),
                }
            })
        };
        let commands = COMMANDS.into_iter().map(command).collect::<Result<_, _>>()?;
        Ok(Self { waiting, _commands: commands })
    }

    /// Answers the requests that wait; returns whether there were any.
    pub(super) fn serve(&self, steering: &mut Steering<'_>) -> bool {
        let mut asked = false;
        for (show, reply) in self.waiting.try_iter() {
            asked = true;
            let value = match steering.answer(Request::Show(show)) {
                Ok(answer) => answer.value(),
                Err(refusal) => json!({ "error": refusal.to_string() }),
            };
            // A client that has given up needs no answer.
            let _ = reply.try_send(value);
        }
        asked
    }
}
