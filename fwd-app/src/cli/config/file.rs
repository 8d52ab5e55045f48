//! Reads a file into [`Setting`]s: tables of options by name, and three special forms: `[[port]]`, `[vrf.NAME]` and `sources.prefer`, which
//! become `--address`, `--vrf` and so on. It only translates values; their options' parsers check them.

use super::place::{self, FilePlace};
use super::{COMMANDS, ConfigMistake, Origin, PortPlace, Setting, check, is_flag, is_list, nearest};
use clap::{Arg, Command};
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

pub(super) const PORT: &str = "port";
pub(super) const VRF: &str = "vrf";
/// The value of `ports.ports` that selects all ports, in DPDK's order, and not only those with a `[[port]]`.
pub(super) const ALL: &str = "all";
/// The value of a port's `queues` that lets `run` choose the lcores.
pub(super) const AUTO: &str = "auto";

const QUEUES_KEY: &str = "port.queues";

/// Keys of `[[port]]`, with the ids of their options, and whether a port may have several values.
pub(super) const PORT_KEYS: [(&str, &str, bool); 8] = [
    ("name", "port_name", false),
    ("queues", "config", true),
    ("addresses", "address", true),
    ("mtu", "mtu", false),
    ("vrf", "vrf", false),
    ("tap", "tap", false),
    ("eth-dest", "eth_dest", false),
    ("kernel-interface", "kernel_interface", true),
];
/// Keys of `[vrf.NAME]`, in the same form.
pub(super) const VRF_KEYS: [(&str, &str, bool); 4] = [
    ("ports", "vrf", true),
    ("fib", "vrf_fib", true),
    ("table", "vrf_table", false),
    ("updates", "vrf_updates", true),
];

type Value<'t> = Spanned<DeValue<'t>>;

/// The settings of `text`, the contents of the file `path`, for `command`. Skips options that only other commands of `program` have.
///
/// # Errors
/// [`ConfigMistake`] for the first line that is wrong.
pub(super) fn settings(
    program: &Command,
    command: &Command,
    path: &Path,
    text: &str,
) -> Result<Vec<Setting>, ConfigMistake> {
    let mut reader = FileReader { program, command, path, text, settings: Vec::new(), vrfs: Vec::new() };
    let root = DeTable::parse(text).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start);
        ConfigMistake::new(
            format_args!("{}:{}", path.display(), reader.line(start)),
            None,
            one_line(error.message()),
        )
    })?;
    reader.root(root.get_ref())?;
    reader.vrfs()?;
    let mut settings = reader.settings;
    settings.sort_by_key(|(at, _)| *at);
    let settings: Vec<_> = settings.into_iter().map(|(_, setting)| setting).collect();
    once_each(command, &settings)?;
    Ok(settings)
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).collect::<Vec<_>>().join(", ")
}

fn once_each(command: &Command, settings: &[Setting]) -> Result<(), ConfigMistake> {
    for (at, Setting { id, key, origin, .. }) in settings.iter().enumerate() {
        let is_single = command.get_arguments().any(|arg| arg.get_id() == id.as_str() && !is_list(arg));
        let first = settings[..at].iter().find(|other| is_single && other.id == *id);
        if let Some(first) = first {
            let why = format_args!("it is also given at {}", first.origin);
            return Err(ConfigMistake::new(origin, Some(key), why));
        }
    }
    Ok(())
}

struct VrfTable {
    name: String,
    span: Range<usize>,
    /// Its ports, with their positions and the keys that name them.
    ports: Vec<(usize, String, String)>,
}

struct FileReader<'a> {
    program: &'a Command,
    command: &'a Command,
    path: &'a Path,
    text: &'a str,
    /// With their positions in the text, which determine the order.
    settings: Vec<(usize, Setting)>,
    vrfs: Vec<VrfTable>,
}

impl FileReader<'_> {
    fn line(&self, at: usize) -> usize {
        1 + self.text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count()
    }

    fn origin(&self, at: usize) -> Origin {
        Origin::File(self.path.to_owned(), self.line(at))
    }

    fn mistake(&self, at: usize, key: &str, why: impl std::fmt::Display) -> ConfigMistake {
        ConfigMistake::new(self.origin(at), Some(key), why)
    }

    fn push(&mut self, at: usize, id: &str, key: &str, value: String) {
        self.push_about(Vec::new(), at, id, key, value);
    }

    fn push_about(&mut self, ports: Vec<PortPlace>, at: usize, id: &str, key: &str, value: String) {
        if self.command.get_arguments().any(|arg| arg.get_id() == id) {
            let (id, key, origin) = (id.to_owned(), key.to_owned(), self.origin(at));
            self.settings.push((at, Setting { id, key, value, origin, ports }));
        }
    }

    fn port_place(&self, names: Vec<String>, at: usize, key: &str) -> PortPlace {
        PortPlace { names, key: key.to_owned(), origin: self.origin(at) }
    }

    fn root(&mut self, root: &DeTable<'_>) -> Result<(), ConfigMistake> {
        for (name, value) in in_order(root) {
            let (at, name) = (name.span().start, name.get_ref().as_ref());
            match (name, value.get_ref()) {
                (PORT, DeValue::Array(ports)) if ports.iter().all(|port| port.get_ref().is_table()) => {
                    let has_list = root.get("ports").and_then(|ports| ports.get_ref().get("ports")).is_some();
                    self.ports(ports.iter(), has_list)?;
                }
                (PORT, _) => return Err(self.mistake(at, PORT, "wanted [[port]], a table for each port")),
                (VRF, DeValue::Table(vrfs)) => {
                    for (vrf, table) in in_order(vrfs) {
                        let (at, name) = (vrf.span().start, vrf.get_ref().as_ref());
                        let DeValue::Table(keys) = table.get_ref() else {
                            let why =
                                format_args!("wanted [vrf.NAME], a table for each VRF; {}", there(table));
                            return Err(self.mistake(at, VRF, why));
                        };
                        self.vrf(name, at, keys)?;
                    }
                }
                (VRF, _) => return Err(self.mistake(at, VRF, "wanted [vrf.NAME], a table for each VRF")),
                (_, value) => {
                    if !self
                        .all_commands()
                        .any(|command| place::tables(command).iter().any(|known| known == name))
                    {
                        return Err(self.unknown_table(at, name));
                    }
                    let DeValue::Table(keys) = value else {
                        return Err(self.mistake(at, name, format_args!("wanted a table, [{name}]")));
                    };
                    self.table(name, keys)?;
                }
            }
        }
        Ok(())
    }

    fn all_commands(&self) -> impl Iterator<Item = &Command> {
        let others = COMMANDS.iter().filter_map(|name| self.program.find_subcommand(name));
        std::iter::once(self.command).chain(others)
    }

    fn unknown_table(&self, at: usize, name: &str) -> ConfigMistake {
        let mut known: Vec<_> = self.all_commands().flat_map(place::tables).collect();
        known.extend([PORT.to_owned(), VRF.to_owned()]);
        let nearest = nearest(name, known.iter().map(String::as_str));
        self.mistake(at, name, format_args!("no such table{nearest}"))
    }

    fn table(&mut self, table: &str, keys: &DeTable<'_>) -> Result<(), ConfigMistake> {
        for (name, value) in in_order(keys) {
            let (at, key) = (name.span().start, name.get_ref().as_ref());
            let place = FilePlace { table: table.to_owned(), key: key.to_owned() }.to_string();
            let Some(arg) = place::find(self.command, table, key) else {
                if self.all_commands().any(|command| place::find(command, table, key).is_some()) {
                    continue;
                }
                let known: Vec<_> =
                    self.all_commands().flat_map(|command| place::keys(command, table)).collect();
                let nearest = nearest(key, known.iter().map(String::as_str));
                return Err(self.mistake(at, &place, format_args!("no such key{nearest}")));
            };
            if arg.get_id() == "ports" && value.get_ref().as_str() == Some(ALL) {
                continue;
            }
            let id = arg.get_id().to_string();
            for (at, text) in self.values(arg, &place, value)? {
                self.push(at, &id, &place, text);
            }
        }
        Ok(())
    }

    fn values(&self, arg: &Arg, key: &str, value: &Value<'_>) -> Result<Vec<(usize, String)>, ConfigMistake> {
        let at = value.span().start;
        if is_flag(arg) {
            let on = value.get_ref().as_bool();
            let on = on.ok_or_else(|| {
                self.mistake(at, key, format_args!("wanted true or false, {}", there(value)))
            })?;
            return Ok(vec![(at, on.to_string())]);
        }
        match value.get_ref() {
            DeValue::String(words) if arg.is_last_set() => {
                Ok(words.split_whitespace().map(|word| (at, word.to_owned())).collect())
            }
            _ => self.one_or_list(is_list(arg), key, value),
        }
    }

    fn one_or_list(
        &self,
        is_list: bool,
        key: &str,
        value: &Value<'_>,
    ) -> Result<Vec<(usize, String)>, ConfigMistake> {
        let wanted = if is_list { "a value or a list of values" } else { "a value" };
        let DeValue::Array(values) = value.get_ref() else {
            return Ok(vec![(value.span().start, self.text(key, wanted, value)?)]);
        };
        if !is_list {
            return Err(self.mistake(
                value.span().start,
                key,
                format_args!("wanted {wanted}, {}", there(value)),
            ));
        }
        values.iter().map(|value| Ok((value.span().start, self.text(key, "a value", value)?))).collect()
    }

    fn text(&self, key: &str, wanted: &str, value: &Value<'_>) -> Result<String, ConfigMistake> {
        match value.get_ref() {
            DeValue::String(text) => Ok(text.as_ref().to_owned()),
            DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str().to_owned()),
            DeValue::Float(number) => Ok(number.as_str().to_owned()),
            _ => {
                Err(self.mistake(value.span().start, key, format_args!("wanted {wanted}, {}", there(value))))
            }
        }
    }

    /// Reads the ports. Without a list in `ports.ports`, they are the ports to use, in this order.
    fn ports<'v>(
        &mut self,
        ports: impl Iterator<Item = &'v Value<'v>>,
        has_list: bool,
    ) -> Result<(), ConfigMistake> {
        let mut devices: Vec<String> = Vec::new();
        let mut maps: Vec<(usize, String)> = Vec::new();
        let mut mapped: Vec<PortPlace> = Vec::new();
        for (position, port) in ports.enumerate() {
            let DeValue::Table(keys) = port.get_ref() else { continue };
            let start = port.span().start;
            let key = format!("{PORT}.device");
            let Some(device) = keys.get("device") else {
                return Err(self.mistake(
                    start,
                    &key,
                    "it is missing: wanted the name, PCI address or index of the port",
                ));
            };
            let (at, name) =
                (device.span().start, self.text(&key, "a name, a PCI address or an index", device)?);
            if name.is_empty() || devices.contains(&name) {
                let why = if name.is_empty() { "it is empty" } else { "another [[port]] has this device" };
                return Err(self.mistake(at, &key, format_args!("'{name}': {why}")));
            }
            // Other options name a port that is given by DPDK's index by its position among the ports in use.
            let is_index = name.parse::<u16>().is_ok();
            let reference = if is_index && !has_list { position.to_string() } else { name.clone() };
            let is_list = self.command.get_arguments().any(|arg| arg.get_id() == "ports" && is_list(arg));
            // Messages may use its number or its name.
            let label = keys.get("name").and_then(|label| label.get_ref().as_str()).map(str::to_owned);
            let number = (!has_list).then(|| position.to_string());
            let names: Vec<_> = [Some(reference), number, label].into_iter().flatten().collect();
            if !has_list && is_list {
                let place = self.port_place(names.clone(), at, &key);
                self.push_about(vec![place], at, "ports", &key, name.clone());
            }
            devices.push(name);
            for (name, value) in in_order(keys) {
                let (at, name) = (name.span().start, name.get_ref().as_ref());
                if name == "queues" {
                    let tuples = self.port_queues(&names[0], value)?;
                    let at = tuples.first().map_or(at, |(at, _)| *at);
                    mapped.push(self.port_place(names.clone(), at, QUEUES_KEY));
                    maps.extend(tuples);
                } else if name != "device" {
                    self.port_key(&names, at, name, value)?;
                }
            }
        }
        if let Some((at, _)) = maps.first() {
            let (at, tuples) = (*at, joined(&maps));
            self.push_about(mapped, at, "config", QUEUES_KEY, tuples);
        }
        Ok(())
    }

    fn port_key(
        &mut self,
        names: &[String],
        at: usize,
        name: &str,
        value: &Value<'_>,
    ) -> Result<(), ConfigMistake> {
        let (port, key) = (&names[0], format!("{PORT}.{name}"));
        let Some((_, id, is_list)) = PORT_KEYS.iter().find(|(known, ..)| *known == name) else {
            let known = PORT_KEYS.iter().map(|(known, ..)| *known).chain(["device"]);
            return Err(self.mistake(at, &key, format_args!("no such key{}", nearest(name, known))));
        };
        for (at, text) in self.one_or_list(*is_list, &key, value)? {
            match *id {
                "vrf" => {
                    let index = self.vrf_index(&text, at);
                    self.vrfs[index].ports.push((at, port.clone(), key.clone()));
                }
                _ => {
                    let place = self.port_place(names.to_vec(), at, &key);
                    let between = if *id == "eth_dest" { ',' } else { '=' };
                    self.push_about(vec![place], at, id, &key, format!("{port}{between}{text}"));
                }
            }
        }
        Ok(())
    }

    /// The queues of a port, checked before other ports are added.
    fn port_queues(&self, port: &str, value: &Value<'_>) -> Result<Vec<(usize, String)>, ConfigMistake> {
        let tuples = self.queues(port, QUEUES_KEY, value)?;
        for (at, tuple) in &tuples {
            // A single tuple would leave gaps among the queues, so it is not checked as a map.
            if !tuple.ends_with(",auto)") && crate::cli::values::queue_tuple(tuple).is_err() {
                let why =
                    format_args!("'{tuple}' is not (port,queue,lcore) with numbers of a queue and an lcore");
                return Err(self.mistake(*at, QUEUES_KEY, why));
            }
        }
        let origin = self.origin(tuples.first().map_or(0, |(at, _)| *at));
        let (id, key, value) = ("config".to_owned(), QUEUES_KEY.to_owned(), joined(&tuples));
        check(self.command, &Setting { id, key, value, origin, ports: Vec::new() })?;
        Ok(tuples)
    }

    /// The queues of a port as tuples of `--config`: a list of lcores, a list of queues with their lcores, or `auto`.
    fn queues(
        &self,
        port: &str,
        key: &str,
        value: &Value<'_>,
    ) -> Result<Vec<(usize, String)>, ConfigMistake> {
        let wanted = "a list of lcores such as [1, 2], or \"auto\"";
        let at = value.span().start;
        match value.get_ref() {
            DeValue::String(auto) if auto.as_ref() == AUTO => Ok(vec![(at, format!("({port},{AUTO})"))]),
            DeValue::Array(lcores) if !lcores.is_empty() => {
                let tuple = |(queue, lcore): (usize, &Value<'_>)| {
                    let at = lcore.span().start;
                    let DeValue::Table(pair) = lcore.get_ref() else {
                        return Ok((at, format!("({port},{queue},{})", self.text(key, "an lcore", lcore)?)));
                    };
                    let part = |name: &str| {
                        let part = pair.get(name).filter(|_| pair.len() == 2);
                        part.ok_or_else(|| self.mistake(at, key, "wanted { queue = N, lcore = N }"))
                            .and_then(|part| self.text(key, "a number", part))
                    };
                    Ok((at, format!("({port},{},{})", part("queue")?, part("lcore")?)))
                };
                lcores.iter().enumerate().map(tuple).collect()
            }
            DeValue::String(other) => {
                Err(self.mistake(at, key, format_args!("wanted {wanted}, found '{other}'")))
            }
            _ => Err(self.mistake(at, key, format_args!("wanted {wanted}, {}", there(value)))),
        }
    }

    /// The index of a VRF in the list; a port may name it before its table appears.
    fn vrf_index(&mut self, name: &str, at: usize) -> usize {
        self.vrfs.iter().position(|vrf| vrf.name == name).unwrap_or_else(|| {
            // An empty span: only ports have named it.
            self.vrfs.push(VrfTable { name: name.to_owned(), span: at..at, ports: Vec::new() });
            self.vrfs.len() - 1
        })
    }

    fn vrf(&mut self, vrf: &str, at: usize, keys: &DeTable<'_>) -> Result<(), ConfigMistake> {
        let index = self.vrf_index(vrf, at);
        self.vrfs[index].span = at..at + 1;
        for (name, value) in in_order(keys) {
            let (at, name) = (name.span().start, name.get_ref().as_ref());
            let key = format!("{VRF}.{vrf}.{name}");
            let Some((_, id, is_list)) = VRF_KEYS.iter().find(|(known, ..)| *known == name) else {
                let known = VRF_KEYS.iter().map(|(known, ..)| *known);
                return Err(self.mistake(at, &key, format_args!("no such key{}", nearest(name, known))));
            };
            for (at, text) in self.one_or_list(*is_list, &key, value)? {
                match *id {
                    "vrf" => self.vrfs[index].ports.push((at, text, key.clone())),
                    _ => self.push(at, id, &key, format!("{vrf}={text}")),
                }
            }
        }
        Ok(())
    }

    /// Adds the settings of the VRFs, after all their ports are known.
    fn vrfs(&mut self) -> Result<(), ConfigMistake> {
        let vrfs = std::mem::take(&mut self.vrfs);
        for VrfTable { name, span, ports } in &vrfs {
            let (at, key) = (span.start, format!("{VRF}.{name}"));
            if span.is_empty() {
                let known: Vec<_> =
                    vrfs.iter().filter(|vrf| !vrf.span.is_empty()).map(|vrf| vrf.name.as_str()).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                let why = format_args!("there is no [vrf.{name}]; there are: {known}");
                return Err(self.mistake(at, &format!("{PORT}.vrf"), why));
            }
            if ports.is_empty() {
                let why = format_args!(
                    "the VRF has no ports: wanted ports = [..] here, or vrf = \"{name}\" in a [[port]]"
                );
                return Err(self.mistake(at, &key, why));
            }
            let place =
                |(at, port, key): &(usize, String, String)| self.port_place(vec![port.clone()], *at, key);
            let places = ports.iter().map(place).collect();
            let ports: Vec<_> = ports.iter().map(|(_, port, _)| port.as_str()).collect();
            self.push_about(places, at, "vrf", &key, format!("{name}={}", ports.join(",")));
        }
        Ok(())
    }
}

fn joined(tuples: &[(usize, String)]) -> String {
    tuples.iter().map(|(_, tuple)| tuple.as_str()).collect::<Vec<_>>().join(",")
}

fn in_order<'v, 't>(table: &'v DeTable<'t>) -> Vec<(&'v Spanned<std::borrow::Cow<'t, str>>, &'v Value<'t>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(name, _)| name.span().start);
    entries
}

fn there(value: &Value<'_>) -> String {
    match value.get_ref() {
        DeValue::String(text) => format!("found the string '{text}'"),
        DeValue::Integer(number) => format!("found {}", number.as_str()),
        DeValue::Float(number) => format!("found {}", number.as_str()),
        DeValue::Boolean(on) => format!("found {on}"),
        DeValue::Datetime(_) => "found a date or a time".to_owned(),
        DeValue::Array(_) => "found a list".to_owned(),
        DeValue::Table(_) => "found a table".to_owned(),
    }
}
