//! Our commands on DPDK's telemetry socket: `/fwd/stats`, `/fwd/engine`, `/fwd/routes`.
//!
//! The handler of a command passes it to the control thread and waits. DPDK's replies cannot contain lists of dictionaries, which therefore
//! become dictionaries by name.

use super::desk::Steering;
use crate::console::grammar::request::{Request, Show};
use crate::console::{Answer, Refusal, Steer as _};
use crossbeam_channel::{Receiver, Sender, bounded};
use dpdk_ffi::telemetry::{Registration, register};
use dpdk_ffi::{DpdkError, Eal};
use serde_json::{Value, json};
use std::time::Duration;

/// Command, answer and help line.
const COMMANDS: [(&str, Show, &str); 3] = [
    ("/fwd/stats", Show::Stats, "Returns the forwarder's summary so far. No parameters"),
    ("/fwd/engine", Show::Engine, "Returns the engine in service and its table. No parameters"),
    ("/fwd/routes", Show::Fib, "Returns counts of routes, next hops and updates. No parameters"),
];
/// Queued requests. DPDK serves each client on its own thread.
const WAITING_MAX: usize = 8;
/// Timeout of an answer: the control thread may be building an engine.
const WAIT: Duration = Duration::from_secs(10);

type Asked = (Show, Sender<Value>);

pub(crate) struct Telemetry {
    waiting: Receiver<Asked>,
    _commands: Vec<Registration>,
}

impl Telemetry {
    /// Registers the commands.
    ///
    /// # Errors
    /// DPDK refuses one.
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

    pub(super) fn serve(&self, steering: &mut Steering<'_>) -> bool {
        let mut asked = false;
        for (show, reply) in self.waiting.try_iter() {
            asked = true;
            let reply = move |answer: Result<Answer, Refusal>| {
                let value = match answer {
                    Ok(answer) => tree(answer.value()),
                    Err(refusal) => json!({ "error": refusal.to_string() }),
                };
                let _ = reply.try_send(value);
            };
            match show {
                Show::Fib => steering.count(show, Box::new(reply)),
                _ => reply(steering.answer(Request::Show(show))),
            }
        }
        asked
    }
}

fn tree(value: Value) -> Value {
    let name = |index: usize, entry: &Value| match &entry["name"] {
        Value::String(name) => name.clone(),
        _ => index.to_string(),
    };
    match value {
        Value::Array(entries) if entries.iter().any(Value::is_object) => {
            let entries = entries.into_iter().enumerate();
            entries.map(|(index, entry)| (name(index, &entry), tree(entry))).collect()
        }
        Value::Object(fields) => fields.into_iter().map(|(field, value)| (field, tree(value))).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_dictionaries_become_dictionaries() {
        let value =
            json!({ "ports": [{ "name": "p0", "queues": [{ "rx": 1 }] }], "sizes": [1, 2], "none": [] });
        let wanted = json!({ "ports": { "p0": { "name": "p0", "queues": { "0": { "rx": 1 } } } }, "sizes": [1, 2], "none": [] });
        assert_eq!(tree(value), wanted);
    }
}
