//! State of the console, and access to it and the forwarder for a request.

use super::counting::Counting;
use super::drain::Drains;
use super::site::Site;
use super::watching::Watching;
use crate::console::{Answer, ClientCommand, Inbox, Refusal, Request, Server};
use crate::datapath::Drops;
use crate::forwarder::Forwarder;
use crate::forwarder::reload::ReloadClient;
use crate::neighbours::thread::asked::RouterHandle;
use crate::routes::Vrf;
use fib::NextHopId;
use hdrhistogram::Histogram;
use std::time::Instant;

/// Counters at the last `clear`, subtracted from later answers.
#[derive(Default)]
pub(super) struct Cleared {
    pub(super) drops: Drops,
    pub(super) latency: Option<Histogram<u64>>,
}

pub(super) struct EngineWanted {
    pub(super) command: ClientCommand,
    pub(super) waiting: Vec<usize>,
    pub(super) result: anyhow::Result<()>,
}

pub(super) struct Desk {
    pub(super) socket: Option<(Server, Inbox)>,
    pub(super) site: Site,
    /// `None` unless ports are interfaces.
    pub(super) router: Option<RouterHandle>,
    pub(super) start: Instant,
    pub(super) cleared: Cleared,
    pub(super) watching: Watching,
    pub(super) counting: Counting,
    pub(super) engines_wanted: Vec<EngineWanted>,
    pub(super) drains: Drains,
    pub(super) reloads: Option<(ReloadClient, Option<ClientCommand>)>,
}

impl Desk {
    /// Requests a reload and answers at its end; refuses while a reload is running.
    pub(super) fn reload(&mut self, command: ClientCommand) {
        match &mut self.reloads {
            Some((_, Some(_))) => command.answer(Err(anyhow::anyhow!("a reload is running").into())),
            Some((client, waiting)) => {
                client.ask();
                *waiting = Some(command);
            }
            None => {
                let refusal = unavailable(command.request(), "a replay has no reload");
                command.answer(Err(refusal));
            }
        }
    }

    /// Answers the client of a finished reload. Returns whether one has finished.
    pub(super) fn finish_reload(&mut self) -> bool {
        let Some((client, waiting)) = &mut self.reloads else { return false };
        let Ok(result) = client.answers.try_recv() else { return false };
        if let Some(command) = waiting.take() {
            command.answer(result.map(Answer::new).map_err(|why| anyhow::anyhow!(why).into()));
        }
        true
    }
}

pub(super) struct Steering<'a> {
    pub(super) forwarder: &'a mut Forwarder,
    pub(super) vrf: Option<usize>,
    pub(super) desk: &'a mut Desk,
}

impl Steering<'_> {
    pub(super) fn vrf(&self) -> &Vrf {
        self.forwarder.vrf(self.number())
    }

    pub(super) fn vrf_mut(&mut self) -> &mut Vrf {
        self.forwarder.vrf_mut(self.number())
    }

    pub(super) fn hop_text(&self, id: NextHopId) -> Option<String> {
        self.vrf().hops().get(id).map(|hop| self.forwarder.ports().shown(hop).to_string())
    }

    pub(super) fn number(&self) -> usize {
        self.vrf.unwrap_or(0)
    }
}

pub(super) fn unavailable(request: &Request, why: &str) -> Refusal {
    Refusal::Unavailable { what: request.to_string(), why: why.to_owned() }
}
