//! Writes the effective options as TOML, in the tables and keys of a file, each with its origin. Read again, it gives the same options.

use super::file::{ALL, AUTO, PORT, PORT_KEYS, VRF, VRF_KEYS};
use super::{Layers, Origin, is_flag, is_list, options, place};
use crate::cli::sources::SourceOrder;
use crate::cli::values;
use crate::topology::queue_spec::QueueEntry;
use clap::{Arg, ArgMatches, Command, FromArgMatches as _};
use fib::PortRef;
use std::fmt::Write as _;

/// The id of `config --from-flags`, which no file may set.
pub(crate) const FROM_FLAGS: &str = "from_flags";

#[derive(Clone, Debug, PartialEq, Eq)]
enum Section {
    Options(String),
    Port(String),
    Vrf(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    section: Section,
    key: String,
    values: Vec<String>,
    is_list: bool,
    is_flag: bool,
    /// Whether to write it although it is a default, since other values depend on it.
    is_needed: bool,
    pub(crate) origin: Origin,
}

impl Shown {
    pub(crate) fn path(&self) -> String {
        match &self.section {
            Section::Options(table) => format!("{table}.{}", self.key),
            Section::Port(device) => format!("{PORT}.{device}.{}", self.key),
            Section::Vrf(name) => format!("{VRF}.{name}.{}", self.key),
        }
    }

    /// The value as TOML; numbers if all values are.
    pub(crate) fn value(&self) -> toml::Value {
        let number = |text: &String| text.parse::<i64>().ok().filter(|number| number.to_string() == *text);
        let are_numbers = self.values.iter().all(|text| number(text).is_some());
        let one = |text: &String| match number(text) {
            _ if self.is_flag => toml::Value::Boolean(text == "true"),
            Some(number) if are_numbers => toml::Value::Integer(number),
            _ => toml::Value::String(text.clone()),
        };
        if self.is_list {
            toml::Value::Array(self.values.iter().map(one).collect())
        } else {
            self.values.first().map_or(toml::Value::Boolean(false), one)
        }
    }
}

pub(crate) fn shown(command: &Command, matches: &ArgMatches, layers: &Layers) -> Vec<Shown> {
    let mut showing = Showing {
        shown: Vec::new(),
        has_ports: command.get_arguments().any(|arg| arg.get_id() == "address"),
    };
    let devices = showing.devices(command, matches, layers);
    for arg in options(command) {
        let id = arg.get_id().as_str();
        if id == "prefer" {
            showing.preference(matches, layers);
            continue;
        }
        let Some(values) = raw(matches, id) else { continue };
        let origin = layers.origin(id, matches);
        if showing.has_ports && id == "ports" && origin != Origin::Default {
            continue;
        }
        let is_done = origin != Origin::Default
            && (showing.of_ports(id, &values, &devices, (matches, layers))
                || showing.of_vrf(id, &values, (matches, layers)));
        if !is_done {
            showing.option(arg, values, origin);
        }
    }
    let place_of = |shown: &Shown| match &shown.section {
        Section::Port(device) => (0, devices.names.iter().position(|known| known == device)),
        Section::Vrf(_) => (1, None),
        Section::Options(table) => (2, place::tables(command).iter().position(|known| known == table)),
    };
    // Stable: VRFs and the keys of a table keep their order.
    showing.shown.sort_by_key(place_of);
    group_vrfs(&mut showing.shown);
    showing.shown
}

fn group_vrfs(shown: &mut [Shown]) {
    let vrfs: Vec<_> = shown
        .iter()
        .map(|shown| shown.section.clone())
        .filter(|section| matches!(section, Section::Vrf(_)))
        .collect();
    let at = |section: &Section| vrfs.iter().position(|vrf| vrf == section);
    let start = shown.iter().position(|shown| matches!(shown.section, Section::Vrf(_))).unwrap_or(0);
    let end = start + vrfs.len();
    shown[start..end].sort_by_key(|shown| at(&shown.section));
}

fn raw(matches: &ArgMatches, id: &str) -> Option<Vec<String>> {
    let values: Vec<_> = matches.get_raw(id)?.map(|value| value.to_string_lossy().into_owned()).collect();
    Some(values).filter(|values| !values.is_empty())
}

struct DeviceNames {
    names: Vec<String>,
    /// Whether `--ports` lists them, so that an index is a position in the list.
    are_listed: bool,
}

impl DeviceNames {
    fn name_of(&self, port: &str) -> Option<String> {
        let device = match PortRef::parse(port) {
            PortRef::Index(index) if self.are_listed => self.names.get(usize::from(index)),
            _ => self.names.iter().find(|name| *name == port),
        };
        // A device that was given by index would not be found by its name.
        device.filter(|name| name.parse::<u16>().is_err() || port.parse::<u16>().is_ok()).cloned()
    }
}

struct Showing {
    shown: Vec<Shown>,
    /// Whether the command has options of ports, so that ports have tables.
    has_ports: bool,
}

impl Showing {
    fn push(&mut self, section: Section, key: &str, values: Vec<String>, is_list: bool, origin: &Origin) {
        let is_needed = *origin == Origin::Default;
        let (key, origin) = (key.to_owned(), origin.clone());
        self.shown.push(Shown { section, key, values, is_list, is_flag: false, is_needed, origin });
    }

    /// The ports with a table: the list of `--ports`, else the ports that an option names.
    fn devices(&mut self, command: &Command, matches: &ArgMatches, layers: &Layers) -> DeviceNames {
        let listed = if self.has_ports { raw(matches, "ports").unwrap_or_default() } else { Vec::new() };
        let listed: Vec<_> = listed.iter().map(|port| port.trim().to_owned()).collect();
        // A port named twice cannot have two tables.
        self.has_ports &= (1..listed.len()).all(|at| !listed[..at].contains(&listed[at]));
        if !self.has_ports {
            return DeviceNames { names: Vec::new(), are_listed: false };
        }
        let are_listed = !listed.is_empty();
        let mut names = listed;
        if !are_listed {
            for (_, id, _) in
                PORT_KEYS.iter().filter(|(_, id, _)| command.get_arguments().any(|arg| arg.get_id() == id))
            {
                let values = raw(matches, id).unwrap_or_default();
                for port in values.iter().flat_map(|value| ports_of(id, value)) {
                    if !names.contains(&port) {
                        names.push(port);
                    }
                }
            }
            if !names.is_empty() {
                self.push(
                    Section::Options("ports".to_owned()),
                    "ports",
                    vec![ALL.to_owned()],
                    false,
                    &Origin::Default,
                );
            }
        }
        for (position, name) in names.iter().enumerate() {
            let origin =
                if are_listed { layers.origin_of("ports", position, matches) } else { Origin::Default };
            self.push(Section::Port(name.clone()), "device", vec![name.clone()], false, &origin);
        }
        DeviceNames { names, are_listed }
    }

    /// Adds an option of ports to the tables of the ports. Returns false if it does not fit there.
    fn of_ports(
        &mut self,
        id: &str,
        values: &[String],
        devices: &DeviceNames,
        (matches, layers): (&ArgMatches, &Layers),
    ) -> bool {
        let Some((key, _, is_list)) = PORT_KEYS.iter().find(|(_, known, _)| *known == id && id != "vrf")
        else {
            return false;
        };
        if !self.has_ports {
            return false;
        }
        if id == "config" {
            return self.queues(&values.concat(), devices, (matches, layers));
        }
        let mut by_device: Vec<(String, usize, Vec<String>)> = Vec::new();
        for (position, value) in values.iter().enumerate() {
            let Some((port, value)) = port_and_value(id, value) else { return false };
            let Some(device) = devices.name_of(&port) else { return false };
            match by_device.iter_mut().find(|(known, ..)| *known == device) {
                Some((.., values)) => values.push(value),
                None => by_device.push((device, position, vec![value])),
            }
        }
        if !is_list && by_device.iter().any(|(.., values)| values.len() > 1) {
            return false;
        }
        for (device, first, values) in by_device {
            let origin = layers.origin_of(id, first, matches);
            self.push(Section::Port(device), key, values, *is_list, &origin);
        }
        true
    }

    fn queues(
        &mut self,
        text: &str,
        devices: &DeviceNames,
        (matches, layers): (&ArgMatches, &Layers),
    ) -> bool {
        let Ok(spec) = values::queue_spec(text) else { return false };
        let mut by_device: Vec<(String, String, Vec<String>)> = Vec::new();
        for entry in spec.entries() {
            let port = entry.port().to_string();
            let Some(device) = devices.name_of(&port) else { return false };
            let is_next = by_device.last().is_some_and(|(last, ..)| *last == device);
            if !is_next {
                by_device.push((device, port, Vec::new()));
            }
            let Some((.., lcores)) = by_device.last_mut() else { return false };
            match entry {
                QueueEntry::Auto { .. } => lcores.push(AUTO.to_owned()),
                QueueEntry::Queue { queue, lcore, .. } if usize::from(*queue) == lcores.len() => {
                    lcores.push(lcore.to_string());
                }
                QueueEntry::Queue { .. } => return false,
            }
        }
        let order: Vec<_> =
            by_device.iter().map(|(name, ..)| devices.names.iter().position(|known| known == name)).collect();
        if !order.is_sorted_by(|one, other| one < other) {
            return false;
        }
        for (device, port, lcores) in by_device {
            let (is_list, origin) = (lcores[0] != AUTO, layers.origin_of_port("config", &port, matches));
            self.push(Section::Port(device), "queues", lcores, is_list, &origin);
        }
        true
    }

    /// Adds an option of VRFs to their tables. Returns false if it does not fit there: two VRFs of one name remain an error.
    fn of_vrf(&mut self, id: &str, values: &[String], (matches, layers): (&ArgMatches, &Layers)) -> bool {
        let Some((key, _, is_list)) = VRF_KEYS.iter().find(|(_, known, _)| *known == id) else {
            return false;
        };
        let mut by_vrf: Vec<(&str, usize, Vec<String>)> = Vec::new();
        for (position, value) in values.iter().enumerate() {
            let Some((vrf, value)) = value.split_once('=') else { return false };
            let values: Vec<_> = if id == "vrf" {
                value.split(',').map(|port| port.trim().to_owned()).collect()
            } else {
                vec![value.to_owned()]
            };
            match by_vrf.iter_mut().find(|(known, ..)| *known == vrf) {
                Some(_) if !is_list => return false,
                Some((.., before)) => before.extend(values),
                None => by_vrf.push((vrf, position, values)),
            }
        }
        let known = raw(matches, "vrf").unwrap_or_default();
        let known: Vec<_> = known.iter().filter_map(|vrf| Some(vrf.split_once('=')?.0)).collect();
        let is_alone = |vrf: &str| known.iter().filter(|known| **known == vrf).count() == 1;
        if !known.iter().chain(by_vrf.iter().map(|(vrf, ..)| vrf)).all(|vrf| is_alone(vrf)) {
            return false;
        }
        for (vrf, first, values) in by_vrf {
            let origin = layers.origin_of(id, first, matches);
            self.push(Section::Vrf(vrf.to_owned()), key, values, *is_list, &origin);
        }
        true
    }

    fn option(&mut self, arg: &Arg, values: Vec<String>, origin: Origin) {
        let Some(place) = place::file_place(arg) else { return };
        let (section, is_list, is_flag) = (Section::Options(place.table), is_list(arg), is_flag(arg));
        self.shown.push(Shown {
            section,
            key: place.key,
            values,
            is_list,
            is_flag,
            is_needed: false,
            origin,
        });
    }

    fn preference(&mut self, matches: &ArgMatches, layers: &Layers) {
        let order = SourceOrder::from_arg_matches(matches).unwrap_or_default().0;
        let mut names = raw(matches, "prefer").unwrap_or_default();
        if names.is_empty() && order.len() < 2 {
            return;
        }
        let mut ids = vec!["prefer", "fib", "fpm", "kernel_routes"].into_iter();
        let origin =
            ids.find_map(|id| Some(layers.origin(id, matches)).filter(|origin| *origin != Origin::Default));
        names.extend(order.into_iter().map(|source| source.name().to_owned()));
        let mut once = Vec::new();
        names.retain(|name| {
            !once.contains(name) && {
                once.push(name.clone());
                true
            }
        });
        let section = Section::Options("sources".to_owned());
        self.push(section, "prefer", names, true, &origin.unwrap_or(Origin::Flag));
    }
}

fn ports_of(id: &str, value: &str) -> Vec<String> {
    match (id, values::queue_spec(value)) {
        ("config", Ok(spec)) => spec.entries().iter().map(|entry| entry.port().to_string()).collect(),
        _ => port_and_value(id, value).into_iter().map(|(port, _)| port).collect(),
    }
}

fn port_and_value(id: &str, value: &str) -> Option<(String, String)> {
    let (port, rest) = match id {
        "vrf" | "config" => return None,
        "eth_dest" => value.split_once(',')?,
        _ => value.split_once('=')?,
    };
    // These options' parsers trim, too.
    let is_trimmed = ["address", "eth_dest"].contains(&id);
    Some(if is_trimmed {
        (port.trim().to_owned(), rest.trim().to_owned())
    } else {
        (port.to_owned(), rest.to_owned())
    })
}

/// A file with these values. `with_origins`: each value has its origin, and defaults appear as comments.
pub(crate) fn toml(shown: &[Shown], with_origins: bool) -> String {
    let mut text = String::new();
    let mut last = None;
    for shown in shown {
        let is_default = shown.origin == Origin::Default && !shown.is_needed;
        if is_default && !with_origins {
            continue;
        }
        if last != Some(&shown.section) {
            let gap = if text.is_empty() { "" } else { "\n" };
            let _ = match &shown.section {
                Section::Options(table) => writeln!(text, "{gap}[{table}]"),
                Section::Port(_) => writeln!(text, "{gap}[[{PORT}]]"),
                Section::Vrf(name) => writeln!(text, "{gap}[{VRF}.{name}]"),
            };
            last = Some(&shown.section);
        }
        let (comment, key, value) = (if is_default { "# " } else { "" }, &shown.key, shown.value());
        let origin = if with_origins { format!("  # {}", shown.origin) } else { String::new() };
        let _ = writeln!(text, "{comment}{key} = {value}{origin}");
    }
    text
}
