//! Reads the configuration of a running forwarder again, and determines the changes.

use super::{Cli, Command};
use crate::cli::config::show;
use crate::cli::config::{Layers, Origin, environment};
use crate::forwarder::in_effect::{ConfigValue, changed_paths};
use crate::forwarder::reload::ReloadPlan;
use crate::ports::address::PortAddress;
use crate::routes::spec::{DEFAULT, VrfSpec};
use anyhow::{Context as _, anyhow};
use clap::{CommandFactory as _, FromArgMatches as _};
use fib::PortRef;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Clone, Debug, Default)]
pub(super) struct ConfigReader {
    pub(super) words: Vec<OsString>,
    pub(super) default: Option<PathBuf>,
    /// The list of ports at the start, which defines their numbers; empty for all ports.
    pub(super) ports: Vec<PortRef>,
    pub(super) vrfs: Vec<VrfSpec>,
}

fn ports_of(vrfs: &[VrfSpec], numbered: impl Fn(&PortRef) -> PortRef) -> BTreeMap<&str, BTreeSet<PortRef>> {
    vrfs.iter().map(|vrf| (vrf.name.as_str(), vrf.ports.iter().map(&numbered).collect())).collect()
}

const PORTS: &str = "ports.ports";
const ORDER: &str = "sources.prefer";
/// Keys applied by a reload, in addition to those for ports and VRFs.
const APPLIED: [&str; 6] =
    ["sources.fib", ORDER, "ports.address", "ports.mtu", "vrfs.vrf-fib", "forwarder.log-level"];

fn is_applied(path: &str) -> bool {
    let is_vrf = path.starts_with("vrf.") && path.ends_with(".fib");
    let is_port = path.starts_with("port.") && (path.ends_with(".addresses") || path.ends_with(".mtu"));
    is_vrf || is_port || APPLIED.contains(&path)
}

/// Whether a source other than files was added or removed, which needs a restart.
fn have_other_feeds(before: &[ConfigValue], after: &[ConfigValue]) -> bool {
    let feeds = |values: &[ConfigValue]| {
        ["sources.fpm", "sources.kernel-routes"]
            .map(|path| values.iter().any(|at| at.path == path && at.value != serde_json::Value::Bool(false)))
    };
    feeds(before) != feeds(after)
}

impl ConfigReader {
    /// Maps port references of a configuration with the list of ports `listed` to running ports. An index refers to that list, whose order
    /// may have changed since the start.
    ///
    /// # Errors
    /// The lists have different ports.
    fn numbering(&self, listed: &[PortRef]) -> anyhow::Result<impl Fn(&PortRef) -> PortRef> {
        let missing = |of: &[PortRef], from: &[PortRef]| -> Vec<String> {
            from.iter().filter(|port| !of.contains(port)).map(PortRef::to_string).collect()
        };
        let (new, gone) = (missing(&self.ports, listed), missing(listed, &self.ports));
        if !new.is_empty() || !gone.is_empty() {
            let list =
                |ports: Vec<String>| if ports.is_empty() { "none".to_owned() } else { ports.join(", ") };
            let (new, gone) = (list(new), list(gone));
            return Err(anyhow!(
                "the list of ports has changed ({PORTS}: new {new}, gone {gone}), which needs a restart"
            ));
        }
        let numbers: Vec<_> =
            listed.iter().map(|port| self.ports.iter().position(|known| known == port)).collect();
        let number = move |place: u16| {
            let number = numbers.get(usize::from(place)).copied().flatten();
            number.and_then(|number| u16::try_from(number).ok()).unwrap_or(place)
        };
        Ok(move |port: &PortRef| match port {
            PortRef::Index(place) => PortRef::Index(number(*place)),
            // A VLAN of a port: its index, a dot, the id.
            PortRef::Name(name) => match name.split_once('.').map(|(port, vlan)| (port.parse(), vlan)) {
                Some((Ok(place), vlan)) => PortRef::Name(format!("{}.{vlan}", number(place))),
                _ => port.clone(),
            },
            PortRef::ById => PortRef::ById,
        })
    }

    /// Reads file and environment again, checks them, and compares them with the values in effect.
    ///
    /// # Errors
    /// The first mistake, with its line.
    pub(super) fn read(&self, in_effect: &[ConfigValue]) -> anyhow::Result<ReloadPlan> {
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
            Some((key, origin)) => error.context(format!("{origin}: {key}")),
            None => error,
        };
        let plan = || -> anyhow::Result<ReloadPlan> {
            let vrfs = VrfSpec::all(&args.vrfs.vrf, &args.vrfs.vrf_fib)?;
            let feeds =
                args.feeds.spec(&args.order, args.tables.engine.routes_max, !args.ports.tap.is_empty());
            let feeds = feeds.for_vrfs(&vrfs, &args.feeds.vrf_table)?;
            let (name, given) = matches.subcommand().context("there is a command")?;
            let command = program.find_subcommand(name).context("the command is known")?;
            let config = super::config_values(&show::shown(command, given, &layers));
            let has_order = !have_other_feeds(in_effect, &config);
            let is_applied = |path: &String| is_applied(path) && (has_order || path != ORDER);
            let (applied, mut restart): (Vec<_>, Vec<_>) =
                changed_paths(in_effect, &config).into_iter().partition(is_applied);
            let numbering = self.numbering(&args.ports.ports)?;
            // References in a file follow its list of ports; others refer to the running list.
            let numbered = |option: &str, port: &PortRef| match layers.origin(option, given) {
                Origin::File(..) => numbering(port),
                _ => port.clone(),
            };
            if args.ports.ports != self.ports {
                restart.push(PORTS.to_owned());
            }
            if ports_of(&args.vrfs.vrf, |port| numbered("vrf", port)) == ports_of(&self.vrfs, PortRef::clone)
            {
                restart.retain(|path| !(path.starts_with("vrf.") && path.ends_with(".ports")));
            } else if !restart.iter().any(|path| path.starts_with("vrf")) {
                restart.push("vrfs.vrf".to_owned());
            }
            let files = vrfs.iter().map(|vrf| (vrf.name.clone(), vrf.files.clone()));
            let files = files.chain([(DEFAULT.to_owned(), args.tables.fib.clone())]).collect();
            // New VRFs have no tables before a restart, and removed ones keep their routes.
            if restart.iter().any(|path| path.starts_with("vrf.") || path.starts_with("vrfs.")) {
                return Err(anyhow!("VRFs have changed ({}), which needs a restart", restart.join(", ")));
            }
            Ok(ReloadPlan {
                files,
                addresses: args
                    .ports
                    .address
                    .iter()
                    .map(|at| PortAddress { port: numbered("address", &at.port), ..at.clone() })
                    .collect(),
                mtus: args.ports.mtu.iter().map(|(port, mtu)| (numbered("mtu", port), *mtu)).collect(),
                order: has_order.then_some(feeds.sources),
                netns: args.ports.taps().netns,
                log_level: Some(args.forward.log_level),
                applied,
                restart,
                config,
            })
        };
        plan().map_err(blame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forwarder::reload::VrfFiles;
    use crate::notice::LogLevel;
    use proptest::prelude::*;

    fn reader(file: &std::path::Path) -> (ConfigReader, Vec<ConfigValue>) {
        let program = Cli::command();
        let words: Vec<OsString> = vec!["fwd-app".into(), "run".into(), "--config-file".into(), file.into()];
        let layers = Layers::read(&program, &words, &[], None).unwrap();
        let matches = program.clone().try_get_matches_from(layers.merge(&program, &words)).unwrap();
        let (name, given) = matches.subcommand().unwrap();
        let shown = show::shown(program.find_subcommand(name).unwrap(), given, &layers);
        let Command::Run(args) = Cli::from_arg_matches(&matches).unwrap().command else {
            panic!("it is run")
        };
        let reader = ConfigReader { words, default: None, ports: args.ports.ports, vrfs: args.vrfs.vrf };
        (reader, crate::commands::config_values(&shown))
    }

    #[test]
    fn the_order_of_sources_is_applied_unless_one_comes_or_goes() {
        use crate::routes::feeds::running::FeedSource::{Files, Fpm, Kernel};
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("f.toml");
        let write = |sources: &str| std::fs::write(&file, format!("[sources]\n{sources}")).unwrap();
        write("fib = \"/dev/null\"\nkernel-routes = true\n");
        let (reader, now) = reader(&file);
        let plan = reader.read(&now).unwrap();
        assert_eq!((plan.order, plan.applied.len()), (Some(vec![Files, Kernel]), 0));
        write("prefer = [\"kernel-routes\", \"fib\"]\nfib = \"/dev/null\"\nkernel-routes = true\n");
        let plan = reader.read(&now).unwrap();
        assert_eq!((plan.order, plan.restart.len()), (Some(vec![Kernel, Files]), 0));
        assert_eq!(plan.applied, ["sources.prefer"]);
        // A new source needs a restart, as does an order that contains it.
        write("fib = \"/dev/null\"\nfpm = \"127.0.0.1:1\"\nkernel-routes = true\nprefer = [\"fpm\"]\n");
        let plan = reader.read(&now).unwrap();
        assert_eq!((plan.order, plan.restart), (None, vec!["sources.fpm".to_owned(), ORDER.to_owned()]));
        write("kernel-routes = true\n");
        let plan = reader.read(&now).unwrap();
        assert_eq!(
            (plan.order, plan.applied),
            (Some(vec![Kernel]), vec!["sources.fib".to_owned(), ORDER.to_owned()])
        );
        let with_fpm = [now, vec![value_of("sources.fpm", "127.0.0.1:1")]].concat();
        write("fib = \"/dev/null\"\nfpm = \"127.0.0.1:2\"\nkernel-routes = true\n");
        let plan = reader.read(&with_fpm).unwrap();
        assert_eq!(
            (plan.order, plan.restart),
            (Some(vec![Files, Fpm("127.0.0.1:2".parse().unwrap()), Kernel]), vec!["sources.fpm".to_owned()])
        );
    }

    fn value_of(path: &str, value: &str) -> ConfigValue {
        ConfigValue { path: path.to_owned(), value: value.into(), origin: String::new() }
    }

    fn by_name(reader: &ConfigReader, plan: &ReloadPlan) -> (Vec<String>, Vec<String>, VrfFiles) {
        let device = |port: &PortRef| match port {
            PortRef::Index(number) => reader.ports[usize::from(*number)].to_string(),
            other => other.to_string(),
        };
        let mut addresses: Vec<_> =
            plan.addresses.iter().map(|at| format!("{} {}", device(&at.port), at.address)).collect();
        let mut mtus: Vec<_> =
            plan.mtus.iter().map(|(port, mtu)| format!("{} {mtu}", device(port))).collect();
        addresses.sort();
        mtus.sort();
        (addresses, mtus, plan.files.clone())
    }

    fn tables() -> impl Strategy<Value = (Vec<String>, Vec<String>)> {
        let table = |(number, is_index): (usize, bool)| {
            let device = if is_index { number.to_string() } else { format!("\"p{number}\"") };
            let vrf = if number % 3 == 2 { "vrf = \"of-ports\"\n" } else { "" };
            format!(
                "[[port]]\ndevice = {device}\naddresses = [\"192.0.2.{number}/32\"]\nmtu = {}\n{vrf}",
                1000 + number
            )
        };
        let ports = proptest::collection::vec(any::<bool>(), 4..7)
            .prop_map(move |kinds| kinds.into_iter().enumerate().map(table).collect::<Vec<_>>());
        (ports, 0_usize..4).prop_map(|(ports, vrfs)| {
            let vrf = |number| format!("[vrf.v{number}]\nports = [\"q{number}\"]\nfib = [\"/dev/null\"]\n");
            let of_ports = "[vrf.of-ports]\nfib = [\"/dev/null\"]\n".to_owned();
            (ports, (0..vrfs).map(vrf).chain([of_ports]).collect())
        })
    }

    proptest! {
        // Each case reads two files.
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn the_order_of_tables_changes_nothing_while_it_runs(
            (before, after) in tables().prop_flat_map(|(ports, vrfs)| {
                let all = [ports, vrfs].concat();
                (Just(all.clone()), Just(all).prop_shuffle())
            })
        ) {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("f.toml");
            let list = |tables: &[String]| format!("[sources]\nfib = \"/dev/null\"\n{}", tables.concat());
            std::fs::write(&file, list(&before)).unwrap();
            let (reader, now) = reader(&file);
            let same = reader.read(&now).unwrap();
            prop_assert!(same.applied.is_empty() && same.restart.is_empty(), "{:?}", same);
            std::fs::write(&file, list(&after)).unwrap();
            let plan = reader.read(&now).unwrap();
            prop_assert_eq!(by_name(&reader, &same), by_name(&reader, &plan));
            let ports = |tables: &[String]| tables.iter().filter(|table| table.starts_with("[[")).cloned().collect::<Vec<_>>();
            let moved = if ports(&before) == ports(&after) { vec![] } else { vec![PORTS.to_owned()] };
            prop_assert_eq!((plan.applied, plan.restart), (vec![], moved));
        }
    }

    #[test]
    fn an_address_of_the_command_line_stays_at_its_port() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("f.toml");
        let write = |devices: [&str; 2]| {
            let ports = devices.map(|device| format!("[[port]]\ndevice = \"{device}\"\n")).concat();
            std::fs::write(&file, format!("{ports}[sources]\nfib = \"/dev/null\"\n")).unwrap();
        };
        write(["p0", "p1"]);
        let (mut reader, _) = reader(&file);
        reader.words.extend(["--address", "0=192.0.2.1/24"].map(OsString::from));
        write(["p1", "p0"]);
        let plan = reader.read(&[]).unwrap();
        assert_eq!(plan.addresses[0].port, PortRef::Index(0));
    }

    #[test]
    fn other_ports_need_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("f.toml");
        let write = |devices: &[&str]| {
            let ports: String =
                devices.iter().map(|device| format!("[[port]]\ndevice = \"{device}\"\n")).collect();
            std::fs::write(&file, format!("{ports}[sources]\nfib = \"/dev/null\"\n")).unwrap();
        };
        write(&["p0", "p1"]);
        let (reader, now) = reader(&file);
        for (devices, change) in [
            (&["p0", "p1", "p2"][..], "new p2, gone none"),
            (&["p1"], "new none, gone p0"),
            (&["p0", "p3"], "new p3, gone p1"),
        ] {
            write(devices);
            let why = reader.read(&now).unwrap_err().to_string();
            assert_eq!(
                why,
                format!("the list of ports has changed (ports.ports: {change}), which needs a restart")
            );
        }
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
        let (reader, now) = reader(&file);
        let same = reader.read(&now).unwrap();
        assert!(same.applied.is_empty() && same.restart.is_empty(), "{same:?}");
        write("[forwarder]\nrx-burst = 64\nlog-level = \"debug\"\n", "192.0.2.2/24", "/dev/zero");
        let plan = reader.read(&now).unwrap();
        assert_eq!(plan.applied, ["forwarder.log-level", "port.p0.addresses", "sources.fib"]);
        assert_eq!(plan.log_level, Some(LogLevel::Debug));
        assert_eq!(plan.restart, ["forwarder.rx-burst"]);
        assert_eq!((&plan.files[DEFAULT][..], plan.addresses.len()), (&[PathBuf::from("/dev/zero")][..], 1));
        write("[forwarder]\nrx-burst = 9999\n", "192.0.2.2/24", "/dev/null");
        let error = reader.read(&now).unwrap_err().to_string();
        assert!(
            error.ends_with("f.toml:2: forwarder.rx-burst: invalid value '9999': 9999 is not in 1..=4096"),
            "{error}"
        );
        write("[vrf.red]\nports = [1]\n", "192.0.2.1/24", "/dev/null");
        assert!(reader.read(&now).unwrap_err().to_string().contains("vrf.red.ports"));
        write("", "192.0.2.1/24", "/absent");
        assert!(
            reader
                .read(&now)
                .unwrap_err()
                .to_string()
                .ends_with("sources.fib: /absent: No such file or directory (os error 2)")
        );
    }
}
