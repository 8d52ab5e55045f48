//! Reads the configuration of a running forwarder again, and finds what has changed.

use super::{Cli, Command};
use crate::cli::config::show::{self, Shown};
use crate::cli::config::{Layers, environment};
use crate::forwarder::reload::ReloadPlan;
use crate::routes::spec::VrfSpec;
use anyhow::{Context as _, anyhow};
use clap::{CommandFactory as _, FromArgMatches as _};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

/// The command line of a running forwarder, and what it came to at the start.
#[derive(Clone, Debug, Default)]
pub(super) struct ConfigReader {
    /// With the program's name.
    pub(super) words: Vec<OsString>,
    /// The file that is read if the words name none.
    pub(super) default: Option<PathBuf>,
    /// What was shown of it.
    pub(super) shown: Vec<Shown>,
}

/// Keys whose values a reload applies: those of route files and of addresses, and the log level.
fn is_applied(path: &str) -> bool {
    let is_vrf = path.starts_with("vrf.") && path.ends_with(".fib");
    let is_port = path.starts_with("port.") && path.ends_with(".addresses");
    is_vrf
        || is_port
        || ["sources.fib", "ports.address", "vrfs.vrf-fib", "forwarder.log-level"].contains(&path)
}

/// Paths whose values differ, but for devices, which are named where an option is about them.
fn changed(before: &[Shown], after: &[Shown]) -> Vec<String> {
    let by_path = |shown: &[Shown]| -> BTreeMap<String, String> {
        let shown = shown.iter().map(|shown| (shown.path(), shown.value().to_string()));
        shown.filter(|(path, _)| !(path.starts_with("port.") && path.ends_with(".device"))).collect()
    };
    let (before, after) = (by_path(before), by_path(after));
    let mut paths: Vec<_> = before
        .keys()
        .chain(after.keys())
        .filter(|path| before.get(*path) != after.get(*path))
        .cloned()
        .collect();
    paths.sort_unstable();
    paths.dedup();
    paths
}

impl ConfigReader {
    /// Reads file and environment again, and checks the whole.
    ///
    /// # Errors
    /// The first mistake, with its line.
    pub(super) fn read(&self) -> anyhow::Result<ReloadPlan> {
        let program = Cli::command();
        let layers = Layers::read(&program, &self.words, &environment(), self.default.as_deref())?;
        let merged = layers.merge(&program, &self.words);
        let wrong = |error: &clap::Error| match layers.mistake(&program, &self.words, error) {
            Some(mistake) => anyhow::Error::from(mistake),
            None => anyhow!(error.to_string()),
        };
        let matches = program.clone().try_get_matches_from(merged).map_err(|error| wrong(&error))?;
        let Command::Run(args) = Cli::from_arg_matches(&matches)?.command else {
            return Err(anyhow!("the command is not run"));
        };
        layers.check_files()?;
        let blame = |error: anyhow::Error| match layers.blame(&program, &error.to_string()) {
            Some(setting) => error.context(format!("{}: {}", setting.origin, setting.key)),
            None => error,
        };
        let plan = || -> anyhow::Result<ReloadPlan> {
            let vrfs = VrfSpec::all(&args.vrfs.vrf, &args.vrfs.vrf_fib)?;
            let feeds =
                args.feeds.spec(&args.order, args.tables.engine.routes_max, !args.ports.tap.is_empty());
            feeds.for_vrfs(&vrfs, &args.feeds.vrf_table)?;
            let (name, given) = matches.subcommand().context("there is a command")?;
            let command = program.find_subcommand(name).context("the command is known")?;
            let paths = changed(&self.shown, &show::shown(command, given, &layers));
            let (applied, restart): (Vec<_>, Vec<_>) = paths.into_iter().partition(|path| is_applied(path));
            let mut files = vec![args.tables.fib.clone()];
            files.extend(vrfs.iter().map(|vrf| vrf.files.clone()));
            // Routes of VRFs that there will be after a restart have no place yet, and those of VRFs that go stay.
            if restart.iter().any(|path| path.starts_with("vrf.") || path.starts_with("vrfs.")) {
                return Err(anyhow!("VRFs have changed ({}), which needs a restart", restart.join(", ")));
            }
            let (addresses, netns) = (args.ports.address.clone(), args.ports.taps().netns);
            let log_level = Some(args.forward.log_level);
            Ok(ReloadPlan { files, addresses, netns, log_level, applied, restart })
        };
        plan().map_err(blame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notice::LogLevel;

    /// A reader of `file` whose forwarder was started with it.
    fn reader(file: &std::path::Path) -> ConfigReader {
        let program = Cli::command();
        let words: Vec<OsString> = vec!["fwd-app".into(), "run".into(), "--config-file".into(), file.into()];
        let layers = Layers::read(&program, &words, &[], None).unwrap();
        let matches = program.clone().try_get_matches_from(layers.merge(&program, &words)).unwrap();
        let (name, given) = matches.subcommand().unwrap();
        let shown = show::shown(program.find_subcommand(name).unwrap(), given, &layers);
        ConfigReader { words, default: None, shown }
    }

    #[test]
    fn what_has_changed_is_applied_or_needs_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("f.toml");
        let write = |more: &str, address: &str, fib: &str| {
            let port = format!("[[port]]\ndevice = \"p0\"\naddresses = [\"{address}\"]\n");
            std::fs::write(&file, format!("{more}{port}[sources]\nfib = \"{fib}\"\n")).unwrap();
        };
        write("", "192.0.2.1/24", "/dev/null");
        let reader = reader(&file);
        let same = reader.read().unwrap();
        assert!(same.applied.is_empty() && same.restart.is_empty(), "{same:?}");
        write("[forwarder]\nrx-burst = 64\nlog-level = \"debug\"\n", "192.0.2.2/24", "/dev/zero");
        let plan = reader.read().unwrap();
        assert_eq!(plan.applied, ["forwarder.log-level", "port.p0.addresses", "sources.fib"]);
        assert_eq!(plan.log_level, Some(LogLevel::Debug));
        assert_eq!(plan.restart, ["forwarder.rx-burst"]);
        assert_eq!((plan.files, plan.addresses.len()), (vec![vec![PathBuf::from("/dev/zero")]], 1));
        // A mistake is said with its line.
        write("[forwarder]\nrx-burst = 9999\n", "192.0.2.2/24", "/dev/null");
        let error = reader.read().unwrap_err().to_string();
        assert!(
            error.ends_with("f.toml:2: forwarder.rx-burst: invalid value '9999': 9999 is not in 1..=4096"),
            "{error}"
        );
        write("[vrf.red]\nports = [1]\n", "192.0.2.1/24", "/dev/null");
        assert!(reader.read().unwrap_err().to_string().contains("vrf.red.ports"));
        write("", "192.0.2.1/24", "/absent");
        assert!(
            reader
                .read()
                .unwrap_err()
                .to_string()
                .ends_with("sources.fib: /absent: No such file or directory (os error 2)")
        );
    }
}
