//! `fwd-app ctl`: controls a running forwarder by a command line, a script from stdin, or a [`prompt`].
//!
//! Commands are parsed here first, so that wrong ones are usage errors even when no forwarder is running.

mod diff;
mod prompt;
mod top;

use crate::cli::values;
use crate::console::grammar::{self, CtlLine};
use crate::console::server::socket;
use crate::console::server::wire::{Ask, Reply};
use crate::console::{Request, capture_file, client};
use crate::error::ConfigError;
use anyhow::Context as _;
use clap::Args;
use std::fs::File;
use std::io::{self, BufRead, ErrorKind, IsTerminal as _, Write as _};
use std::num::NonZeroU64;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Option of `stop`, the only command word that is a command-line option as well.
const DRAIN: &str = "--drain";

pub(crate) const EXAMPLES: &str = "\
Examples:
  fwd-app ctl show port stats
  fwd-app ctl top
  fwd-app ctl route get 192.0.2.1 --json
  fwd-app ctl route add 198.51.100.0/24 via 192.0.2.1 dev 1
  fwd-app ctl route list > routes.txt; fwd-app ctl route diff routes.txt
  fwd-app ctl route list 10.0.0.0/8 longer source fpm --json | jq .next_hop
  fwd-app ctl --socket /run/fwd-app/east.sock stop --drain
  fwd-app ctl < commands.txt
  fwd-app ctl help

Words may be abbreviated: `ctl sh po st`. Without words, commands are read from the terminal, with
completion and history, or from stdin. Blank lines and comments after # are skipped; the first error
ends the script.

Exit codes: 0 done, 1 refused, or route diff found a difference, 2 wrong words, 3 no forwarder is running.";

/// `fwd-app ctl`.
#[derive(Clone, Debug, Args)]
pub(crate) struct CtlArgs {
    /// Socket of the forwarder [default: the only one in /run/fwd-app]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Print each answer as a line of JSON
    #[arg(long)]
    json: bool,

    /// Longest wait for an answer, seconds [default: 10; for stop --drain 180]
    #[arg(long, value_name = "S", value_parser = values::seconds)]
    timeout: Option<Duration>,

    /// With `top`: end after N screens
    #[arg(long, value_name = "N")]
    count: Option<NonZeroU64>,

    /// The word `--drain` of `stop`, which would be an unknown option otherwise.
    #[arg(long, hide = true)]
    drain: bool,

    /// A command; `help` lists them [default: commands from the terminal or stdin]
    #[arg(value_name = "WORDS")]
    words: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refused(String);

pub(crate) fn main(args: &CtlArgs) -> anyhow::Result<()> {
    let line = args.line();
    if line.is_empty() {
        let forwarder = RemoteForwarder::new(args, Path::new(socket::FOLDER))?;
        let stdin = io::stdin();
        if stdin.is_terminal() { prompt::main(&forwarder) } else { script(&forwarder, stdin.lock()) }
    } else {
        one(args, &line)
    }
}

impl CtlArgs {
    pub(super) fn line(&self) -> String {
        let mut words = self.words.clone();
        words.extend(self.drain.then(|| DRAIN.to_owned()));
        words.extend(
            self.count.iter().flat_map(|count| [grammar::COUNT_OPTION.to_owned(), count.to_string()]),
        );
        words.join(" ")
    }
}

fn one(args: &CtlArgs, line: &str) -> anyhow::Result<()> {
    let wrong = |error: grammar::WordsError| ConfigError::Invalid(error.to_string());
    match grammar::parse(line).map_err(wrong)? {
        CtlLine::Help(help) if args.json => show(&serde_json::to_string(&help)?).map(drop),
        CtlLine::Help(help) => show(&help.to_string()).map(drop),
        CtlLine::Quit => Ok(()),
        CtlLine::Ask(_) | CtlLine::RouteDiff(_) | CtlLine::Top { .. } => {
            RemoteForwarder::new(args, Path::new(socket::FOLDER))?.run(line).map(drop)
        }
    }
}

/// Runs the commands of `input`, one per line, up to the first error or `quit`.
fn script(forwarder: &RemoteForwarder, input: impl BufRead) -> anyhow::Result<()> {
    for (number, line) in (1..).zip(input.lines()) {
        let at = || format!("stdin:{number}");
        let line = line.with_context(at)?;
        if !grammar::is_blank(&line) && forwarder.run(&line).with_context(at)?.is_break() {
            break;
        }
    }
    Ok(())
}

/// Prints a non-empty answer, ended by a newline. Breaks when the reader has closed stdout, which is no failure.
fn show(answer: &str) -> anyhow::Result<ControlFlow<()>> {
    let end = if answer.is_empty() || answer.ends_with('\n') { "" } else { "\n" };
    let mut out = io::stdout().lock();
    match out
        .write_all(answer.as_bytes())
        .and_then(|()| out.write_all(end.as_bytes()))
        .and_then(|()| out.flush())
    {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(ControlFlow::Break(())),
        written => written.map(ControlFlow::Continue).context("cannot write to stdout"),
    }
}

#[derive(Clone, Debug)]
struct RemoteForwarder {
    socket: PathBuf,
    json: bool,
    timeout: Option<Duration>,
}

impl RemoteForwarder {
    /// The forwarder at `--socket`, or the only one in `folder`.
    ///
    /// # Errors
    /// `ClientError::None` without a listener in `folder`, [`ConfigError::Invalid`] with several.
    fn new(args: &CtlArgs, folder: &Path) -> anyhow::Result<Self> {
        let CtlArgs { json, timeout, ref socket, .. } = *args;
        let socket = match socket {
            Some(socket) => socket.clone(),
            None => only(client::find(folder)?)?,
        };
        Ok(Self { socket, json, timeout })
    }

    /// Runs a command and prints its answer. Breaks for `quit`.
    ///
    /// # Errors
    /// `WordsError`, [`ClientError`](client::ClientError), [`Refused`], [`diff::RoutesDiffer`].
    fn run(&self, line: &str) -> anyhow::Result<ControlFlow<()>> {
        match grammar::parse(line)? {
            CtlLine::Ask(request) => {
                let file = match &request {
                    Request::CaptureDrops { file, .. } => {
                        Some(capture_file::open(file).with_context(|| format!("cannot write {file}"))?)
                    }
                    _ => None,
                };
                let _ = self.ask(line, file.as_ref(), self.json, &mut show)?;
            }
            CtlLine::RouteDiff(wanted) => diff::main(self, &wanted)?,
            CtlLine::Top { count } => top::main(self, count)?,
            CtlLine::Help(help) => drop(show(&help.to_string())?),
            CtlLine::Quit => return Ok(ControlFlow::Break(())),
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Sends a request, and passes the answer to `take`, a list in parts until `take` breaks. `file` goes with the request.
    fn ask(
        &self,
        line: &str,
        file: Option<&File>,
        json: bool,
        take: &mut dyn FnMut(&str) -> anyhow::Result<ControlFlow<()>>,
    ) -> anyhow::Result<ControlFlow<()>> {
        let mut ask = Ask { line: line.to_owned(), json };
        loop {
            // A drain's hook and the wait for quiet ports take up to a minute each.
            let usual = Duration::from_secs(if line.contains(" --") { 180 } else { 10 });
            let Reply { ok, text, data, part, next, error } =
                client::ask(&self.socket, &ask, file, self.timeout.unwrap_or(usual))?;
            if !ok {
                return Err(Refused(error.unwrap_or_else(|| "refused without a reason".to_owned())).into());
            }
            let answer = part.or(text).unwrap_or_else(|| if json { data.to_string() } else { String::new() });
            match (take(&answer)?, next) {
                (ControlFlow::Continue(()), Some(next)) => ask.line = next,
                (flow, _) => return Ok(flow),
            }
        }
    }
}

fn only(mut found: Vec<PathBuf>) -> Result<PathBuf, ConfigError> {
    match (found.pop(), found.is_empty()) {
        (Some(socket), true) => Ok(socket),
        (last, _) => {
            let paths: Vec<_> = found.iter().chain(&last).map(|path| path.display().to_string()).collect();
            let message =
                format!("several forwarders are running; choose one with --socket: {}", paths.join(", "));
            Err(ConfigError::Invalid(message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::server::Limits;
    use crate::console::{Answer, Refusal, Server, Steer};
    use std::sync::Mutex;

    struct Notes<'a>(&'a Mutex<Vec<String>>);

    impl Steer for Notes<'_> {
        fn answer(&mut self, request: Request) -> Result<Answer, Refusal> {
            self.0.lock().unwrap().push(request.to_string());
            if request == Request::Start {
                Err(anyhow::anyhow!("it runs").into())
            } else {
                Ok(Answer::done())
            }
        }
    }

    fn args(socket: Option<PathBuf>) -> CtlArgs {
        CtlArgs {
            socket,
            json: false,
            timeout: Some(Duration::from_secs(30)),
            count: None,
            drain: false,
            words: Vec::new(),
        }
    }

    fn run(text: &str) -> (Vec<String>, anyhow::Result<()>) {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("x.sock");
        let (_server, inbox) = Server::start(&path, Limits::default()).unwrap();
        let asked = Mutex::new(Vec::new());
        let forwarder = RemoteForwarder::new(&args(None), scratch.path()).unwrap();
        assert_eq!(forwarder.socket, path);
        let result = std::thread::scope(|scope| {
            let script = scope.spawn(|| script(&forwarder, text.as_bytes()));
            while !script.is_finished() {
                inbox.serve(&mut Notes(&asked), 1);
                std::thread::yield_now();
            }
            script.join().unwrap()
        });
        (asked.into_inner().unwrap(), result)
    }

    #[test]
    fn a_script_stops_at_its_first_error_or_at_quit() {
        let (asked, result) = run("# routes\n\nroute add 10.0.0.0/8 1 # one\r\nsh dr\nstart\nstop\n");
        assert_eq!(asked, ["route add 10.0.0.0/8 1", "show drops", "start"]);
        let error = format!("{:#}", result.unwrap_err());
        assert_eq!(error, "stdin:5: it runs");
        let (asked, result) = run("stop\nstoop\nstart\n");
        assert_eq!(asked, ["stop"]);
        assert!(format!("{:#}", result.unwrap_err()).starts_with("stdin:2: 'stoop' is not understood here"));
        let (asked, result) = run("help\nstop --drain\nquit\nstart\n");
        assert!(asked == ["stop --drain"] && result.is_ok());
    }

    #[test]
    fn the_one_socket_is_the_default_and_several_are_listed() {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        assert!(RemoteForwarder::new(&args(None), scratch.path()).is_err());
        let one = Server::start(&path("one.sock"), Limits::default()).unwrap();
        drop(std::os::unix::net::UnixListener::bind(path("dead.sock")).unwrap());
        assert_eq!(RemoteForwarder::new(&args(None), scratch.path()).unwrap().socket, path("one.sock"));
        let _two = Server::start(&path("two.sock"), Limits::default()).unwrap();
        let Err(error) = RemoteForwarder::new(&args(None), scratch.path()) else { panic!("two sockets") };
        let error = error.to_string();
        assert!(error.contains("one.sock, ") && error.ends_with("two.sock"), "{error}");
        assert_eq!(RemoteForwarder::new(&args(Some(path("x"))), scratch.path()).unwrap().socket, path("x"));
        drop(one);
    }
}
