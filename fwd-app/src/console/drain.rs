//! `stop --drain`: takes the forwarder out of service without losing packets.
//!
//! 1. The `--drain-hook` makes neighbours choose other paths, for example by withdrawing routes.
//! 2. Forwarding goes on until no packets arrive, within a limit.
//! 3. Receiving stops, and the packets inside leave; then the client is answered. A failure in step 1 or 2 leaves forwarding unchanged.

use crate::console::{Answer, ClientCommand, Refusal};
use crate::datapath::Counters;
use crate::notice;
use crate::topology::Handle;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const HOOK_LIMIT: Duration = Duration::from_secs(60);
/// Arrivals have ended when no packet was forwarded for this time.
const QUIET: Duration = Duration::from_secs(1);
const QUIET_LIMIT: Duration = Duration::from_secs(60);
const INSIDE_LIMIT: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(super) struct Drains {
    hook: Option<PathBuf>,
    running: Option<Drain>,
    resuming: Option<Child>,
}

struct Drain {
    command: ClientCommand,
    step: DrainStep,
    end: Instant,
}

enum DrainStep {
    /// The hook runs.
    Hook(Child),
    /// Waits for the end of arrivals: packets forwarded so far, and when that number last grew.
    Quiet { forwarded: u64, since: Instant },
    /// Receiving has stopped.
    Inside,
}

enum Next {
    Stay,
    Go(DrainStep, Duration),
    Done,
    Failed(anyhow::Error),
}

impl Drains {
    /// Without a hook receiving stops at once.
    pub(super) fn new(hook: Option<PathBuf>) -> Self {
        Self { hook, ..Self::default() }
    }

    pub(super) fn start(&mut self, command: ClientCommand, running: &Handle) {
        if self.running.is_some() {
            return command.answer(Err(anyhow::anyhow!("a drain is running").into()));
        }
        let (step, limit) = match &self.hook {
            Some(hook) => match spawn(hook, "drain") {
                Ok(child) => (DrainStep::Hook(child), HOOK_LIMIT),
                Err(error) => return command.answer(Err(error.into())),
            },
            None => {
                running.pause(true);
                (DrainStep::Inside, INSIDE_LIMIT)
            }
        };
        self.running = Some(Drain { command, step, end: Instant::now() + limit });
    }

    /// Resumes receiving. Fails a drain in progress; after a finished one, runs the hook.
    pub(super) fn resume(&mut self, running: &Handle) -> Result<Answer, Refusal> {
        let was_paused = running.is_paused();
        running.pause(false);
        let cut = self.running.take();
        if let Some(Drain { command, mut step, .. }) = cut {
            if let DrainStep::Hook(child) = &mut step {
                end(child);
            }
            command.answer(Err(anyhow::anyhow!("forwarding was started again meanwhile").into()));
        } else if !was_paused {
            return Ok(Answer::done());
        }
        if let Some(hook) = &self.hook {
            self.resuming = Some(spawn(hook, "resume")?);
        }
        Ok(Answer::done())
    }

    /// Advances the drain; returns whether it changed.
    pub(super) fn advance(&mut self, running: &Handle) -> bool {
        if let Some(child) = &mut self.resuming
            && let Some(status) = child.try_wait().transpose()
        {
            self.resuming = None;
            if !matches!(status, Ok(status) if status.success()) {
                notice::warn(format_args!("--drain-hook resume: {}", outcome(&status)));
            }
        }
        let Some(mut drain) = self.running.take() else { return false };
        match drain.step.next(running) {
            Next::Stay if Instant::now() < drain.end => {
                self.running = Some(drain);
                return false;
            }
            Next::Stay => {
                let error = drain.step.overdue(running);
                drain.command.answer(Err(error.into()));
            }
            Next::Go(step, limit) => {
                self.running = Some(Drain { step, end: Instant::now() + limit, ..drain });
            }
            Next::Done => drain.command.answer(Ok(Answer::done())),
            Next::Failed(error) => drain.command.answer(Err(error.into())),
        }
        true
    }
}

impl DrainStep {
    fn next(&mut self, running: &Handle) -> Next {
        match self {
            Self::Hook(child) => match child.try_wait() {
                Ok(None) => Next::Stay,
                Ok(Some(status)) if status.success() => {
                    let step = Self::Quiet { forwarded: forwarded(running), since: Instant::now() };
                    Next::Go(step, QUIET_LIMIT)
                }
                result => {
                    let status = result.map(Option::unwrap_or_default);
                    Next::Failed(anyhow::anyhow!("--drain-hook: {}; forwarding continues", outcome(&status)))
                }
            },
            Self::Quiet { forwarded: before, since } => {
                let now = forwarded(running);
                // It may appear to shrink, since counters are published at different times.
                if now > *before {
                    (*before, *since) = (now, Instant::now());
                }
                if since.elapsed() < QUIET {
                    return Next::Stay;
                }
                running.pause(true);
                Next::Go(Self::Inside, INSIDE_LIMIT)
            }
            Self::Inside if running.counters().inside() == 0 => Next::Done,
            Self::Inside => Next::Stay,
        }
    }

    fn overdue(&mut self, running: &Handle) -> anyhow::Error {
        match self {
            Self::Hook(child) => {
                end(child);
                anyhow::anyhow!("--drain-hook has not ended within {HOOK_LIMIT:?}; forwarding continues")
            }
            Self::Quiet { .. } => {
                anyhow::anyhow!("packets still arrive after {QUIET_LIMIT:?}; forwarding continues")
            }
            Self::Inside => {
                let inside = running.counters().inside();
                anyhow::anyhow!("{inside} packets are still in the forwarder after {INSIDE_LIMIT:?}")
            }
        }
    }
}

/// Packets sent, except those from the router or the kernel.
fn forwarded(running: &Handle) -> u64 {
    let Counters { tx_packets, originated, .. } = running.counters();
    tx_packets.saturating_sub(originated)
}

fn spawn(hook: &Path, what: &str) -> anyhow::Result<Child> {
    let child = std::process::Command::new(hook).arg(what).stdin(Stdio::null()).stdout(Stdio::null()).spawn();
    child.map_err(|error| anyhow::anyhow!("cannot run --drain-hook {}: {error}", hook.display()))
}

fn end(child: &mut Child) {
    // It may have exited already.
    drop(child.kill().and_then(|()| child.wait()));
}

fn outcome(result: &std::io::Result<ExitStatus>) -> String {
    result.as_ref().map_or_else(ToString::to_string, ToString::to_string)
}
