//! Options from the command line, the environment and a TOML file.
//!
//! Options that the command line lacks are put before its words, and clap parses the whole, so that all rules between options hold for all
//! origins. First each value is checked separately, so that a mistake is reported with its line of the file.

pub(crate) mod file;
mod place;
pub(crate) mod show;
#[cfg(test)]
mod tests;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

/// The file that `run` and `config` read by default, if it exists.
pub(crate) const DEFAULT_FILE: &str = "/etc/fwd-app/fwd-app.toml";
const PREFIX: &str = "FWD_APP_";
const COMMANDS: [&str; 2] = ["run", "replay"];
pub(crate) const SHOW: &str = "config";
/// The id of `--config-file`, which no file may set.
const FILE_OPTION: &str = "config_file";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Flag,
    Environment(String),
    File(PathBuf, usize),
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("flag"),
            Self::Environment(name) => write!(f, "env {name}"),
            Self::File(path, line) => write!(f, "{}:{line}", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {what}{why}", what = key.as_deref().map(|key| format!("{key}: ")).unwrap_or_default())]
pub(crate) struct ConfigMistake {
    /// `FILE:LINE`, the file, or the variable.
    at: String,
    key: Option<String>,
    why: String,
}

impl ConfigMistake {
    fn new(at: impl fmt::Display, key: Option<&str>, why: impl fmt::Display) -> Self {
        Self { at: at.to_string(), key: key.map(str::to_owned), why: why.to_string() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) id: String,
    /// Its key in a file, such as `forwarder.rx-burst`.
    pub(crate) key: String,
    /// The value as on the command line; `true` or `false` for a flag.
    pub(crate) value: String,
    pub(crate) origin: Origin,
    /// The ports in a value from a table of ports or of VRFs.
    pub(crate) ports: Vec<PortPlace>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortPlace {
    /// Its names in messages; the value contains the first one.
    names: Vec<String>,
    key: String,
    origin: Origin,
}

impl PortPlace {
    /// Whether a message names the port. A number counts only after the word `port`.
    fn is_in(&self, message: &str) -> bool {
        self.names.iter().any(|name| match name.parse::<u16>() {
            Ok(_) => has_word(message, &format!("port {name}")),
            Err(_) => has_word(message, name),
        })
    }
}

/// Settings of a file and the environment for options that the command line lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layers {
    pub(crate) file: Option<PathBuf>,
    /// In the order of the resulting words.
    pub(crate) settings: Vec<Setting>,
}

impl Layers {
    /// Reads the options that `words`, a command line with the program's name, lacks: from the environment, then from the file of
    /// `--config-file` or `default`. Empty for commands that read no file, and for a command line that asks for help.
    ///
    /// # Errors
    /// [`ConfigMistake`].
    pub(crate) fn read(
        program: &Command,
        words: &[OsString],
        environment: &[(String, String)],
        default: Option<&Path>,
    ) -> Result<Self, ConfigMistake> {
        let Some(command) = words.get(1).and_then(|name| options_of(program, name.to_str()?)) else {
            return Ok(Self::default());
        };
        let relaxed = command.clone().ignore_errors(true).no_binary_name(true);
        let Ok(given) = relaxed.try_get_matches_from(&words[2..]) else { return Ok(Self::default()) };
        let is_given = |id: &str| {
            let known = command.get_arguments().any(|arg| arg.get_id() == id);
            known && given.value_source(id) == Some(ValueSource::CommandLine)
        };
        let mut layers = Self::default();
        let variables = of_environment(program, &command, environment)?;
        if let Some(path) = file_of(&given, &variables, default) {
            let mistake = |why: &dyn fmt::Display| ConfigMistake::new(path.display(), None, why);
            let text = std::fs::read(&path).map_err(|error| mistake(&error))?;
            let text = String::from_utf8(text).map_err(|error| mistake(&error))?;
            layers.settings = file::settings(program, &command, &path, &text)?;
            layers.file = Some(path);
        }
        let set: BTreeSet<_> = variables.iter().map(|setting| setting.id.clone()).collect();
        layers.settings.retain(|setting| !set.contains(&setting.id));
        layers.settings.extend(variables.into_iter().filter(|setting| setting.id != FILE_OPTION));
        layers.settings.retain(|setting| !is_given(&setting.id));
        for setting in &layers.settings {
            check(&command, setting)?;
        }
        Ok(layers)
    }

    /// The command line `words` with the settings before its own options.
    pub(crate) fn merge(&self, program: &Command, words: &[OsString]) -> Vec<OsString> {
        let Some(command) = words.get(1).and_then(|name| options_of(program, name.to_str()?)) else {
            return words.to_vec();
        };
        let mut merged = words[..2].to_vec();
        let (mut last, mut positional) = (Vec::new(), Vec::new());
        for setting in &self.settings {
            let Some(arg) = command.get_arguments().find(|arg| arg.get_id() == setting.id.as_str()) else {
                continue;
            };
            match arg.get_long() {
                None if arg.is_last_set() => last.push(setting.value.clone().into()),
                None => positional.push(setting.value.clone().into()),
                Some(_) => merged.extend(word(arg, &setting.value)),
            }
        }
        merged.extend(positional);
        merged.extend_from_slice(&words[2..]);
        if !last.is_empty() {
            merged.extend((!words.iter().any(|word| word == "--")).then(|| "--".into()));
            merged.extend(last);
        }
        merged
    }

    /// The key and origin that a message about an option concerns. It names the option, maybe also the value or the port.
    pub(crate) fn blame(&self, program: &Command, message: &str) -> Option<(&String, &Origin)> {
        // After these words the message lists the existing ports.
        let message = message.split("there are: ").next().unwrap_or_default();
        let option = |rest: &str| {
            let name =
                rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').next().unwrap_or_default();
            name.trim_end_matches('-').to_owned()
        };
        let options: Vec<_> = message.split("--").skip(1).map(option).collect();
        let score = |position: usize, setting: &Setting| {
            let commands = COMMANDS.iter().filter_map(|name| program.find_subcommand(name));
            let mut args = commands.flat_map(Command::get_arguments);
            let long = args.find(|arg| arg.get_id() == setting.id.as_str()).and_then(Arg::get_long)?;
            let place = options.iter().position(|option| option == long)?;
            let words = setting.value.split(['=', ',', '/', '(', ')']).filter(|word| !word.is_empty());
            let words = words.filter(|word| has_word(message, word)).count();
            let has_port = setting.ports.iter().any(|port| port.is_in(message));
            // If the message names two values, the later one is wrong.
            let later = if has_port || words > 0 { position } else { usize::MAX - position };
            Some((has_word(message, &setting.value), Reverse(place), has_port, words, later))
        };
        let named = self.settings.iter().enumerate();
        let named = named.filter_map(|(position, setting)| Some((score(position, setting)?, setting)));
        let named = named.max_by_key(|(score, _)| *score).map(|(_, setting)| setting);
        let is_engine = |setting: &&Setting| message.contains(&format!("'{}' is no engine", setting.value));
        let setting = named.or_else(|| self.settings.iter().find(is_engine))?;
        let port = setting.ports.iter().rfind(|port| port.is_in(message));
        Some(port.map_or((&setting.key, &setting.origin), |port| (&port.key, &port.origin)))
    }

    /// The setting to blame for clap's `error` about the whole: without this one clap accepts the words.
    pub(crate) fn mistake(
        &self,
        program: &Command,
        words: &[OsString],
        error: &clap::Error,
    ) -> Option<ConfigMistake> {
        let is_to_blame = |setting: &&Setting| {
            let mut without = self.clone();
            without.settings.retain(|other| other.id != setting.id);
            program.clone().try_get_matches_from(without.merge(program, words)).is_ok()
        };
        let setting = error.use_stderr().then(|| self.settings.iter().find(is_to_blame)).flatten()?;
        Some(ConfigMistake::new(&setting.origin, Some(&setting.key), paragraph(error)))
    }

    pub(crate) fn origin(&self, id: &str, matches: &ArgMatches) -> Origin {
        self.origin_of(id, 0, matches)
    }

    fn origin_of(&self, id: &str, position: usize, matches: &ArgMatches) -> Origin {
        let of_option = || self.settings.iter().filter(|setting| setting.id == id);
        match (of_option().nth(position).or(of_option().next()), matches.value_source(id)) {
            (Some(setting), _) => setting.origin.clone(),
            (None, Some(ValueSource::CommandLine)) => Origin::Flag,
            (None, _) => Origin::Default,
        }
    }

    fn origin_of_port(&self, id: &str, port: &str, matches: &ArgMatches) -> Origin {
        let mut ports =
            self.settings.iter().filter(|setting| setting.id == id).flat_map(|setting| &setting.ports);
        let place = ports.find(|place| place.names[0] == port);
        place.map_or_else(|| self.origin(id, matches), |place| place.origin.clone())
    }

    /// Checks that the files which options name exist.
    ///
    /// # Errors
    /// [`ConfigMistake`] for the first missing file.
    pub(crate) fn check_files(&self) -> Result<(), ConfigMistake> {
        for Setting { id, key, value, origin, .. } in &self.settings {
            let file = match id.as_str() {
                "fib" | "updates" | "drain_hook" | "trace" => value.as_str(),
                "vrf_fib" | "vrf_updates" => value.split_once('=').map_or("", |(_, file)| file),
                _ => continue,
            };
            let found = std::fs::metadata(file);
            found.map_err(|error| ConfigMistake::new(origin, Some(key), format_args!("{file}: {error}")))?;
        }
        Ok(())
    }
}

/// The clap command whose options `name` takes from files; `config` takes the options of `run`.
fn options_of(program: &Command, name: &str) -> Option<Command> {
    let is_one = COMMANDS.contains(&name) || name == SHOW;
    let command = is_one.then(|| program.find_subcommand(name)).flatten()?;
    Some(command.clone().bin_name(format!("{} {name}", program.get_name())))
}

fn has_word(text: &str, word: &str) -> bool {
    let goes_on = |c: char| c.is_alphanumeric() || "-_".contains(c);
    text.match_indices(word).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + word.len()..]);
        // A dot or a colon ends a sentence, or is part of a word.
        let after = after.strip_prefix(['.', ':']).unwrap_or(after);
        !before.ends_with(|c| goes_on(c) || c == '.' || c == ':') && !after.starts_with(goes_on)
    })
}

/// An option as written on the command line; `None` for a flag that is off.
fn word(arg: &Arg, value: &str) -> Option<OsString> {
    let long = arg.get_long()?;
    match (is_flag(arg), value) {
        (true, "true") => Some(format!("--{long}").into()),
        (true, _) => None,
        (false, value) => Some(format!("--{long}={value}").into()),
    }
}

fn is_flag(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::SetTrue)
}

fn is_list(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Append)
}

fn options(command: &Command) -> impl Iterator<Item = &Arg> {
    let is_one = |arg: &&Arg| {
        let acts = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append | ArgAction::SetTrue);
        acts && arg.get_id() != FILE_OPTION && arg.get_id() != show::FROM_FLAGS
    };
    command.get_arguments().filter(is_one)
}

/// The file to read: from the option, else the environment, else the default. `none` means no file.
fn file_of(given: &ArgMatches, variables: &[Setting], default: Option<&Path>) -> Option<PathBuf> {
    let variable = variables.iter().find(|setting| setting.id == FILE_OPTION);
    let named = given.get_one::<PathBuf>(FILE_OPTION).cloned();
    match named.or_else(|| variable.map(|setting| setting.value.clone().into())) {
        Some(path) => Some(path).filter(|path| *path != Path::new("none")),
        None => default.filter(|path| path.exists()).map(Path::to_owned),
    }
}

fn variable(arg: &Arg) -> String {
    let name = arg.get_long().unwrap_or(arg.get_id().as_str());
    format!("{PREFIX}{}", name.replace('-', "_").to_ascii_uppercase())
}

/// The settings of environment variables. Blanks separate the values of a repeatable option. Variables of the other command are skipped.
fn of_environment(
    program: &Command,
    command: &Command,
    environment: &[(String, String)],
) -> Result<Vec<Setting>, ConfigMistake> {
    let mut settings = Vec::new();
    for (name, value) in environment.iter().filter(|(name, _)| name.starts_with(PREFIX)) {
        let is_it = |arg: &&Arg| variable(arg) == *name;
        let Some(arg) = command.get_arguments().find(is_it) else {
            let all = || COMMANDS.iter().filter_map(|name| program.find_subcommand(name));
            if all().flat_map(Command::get_arguments).any(|arg| is_it(&arg)) {
                continue;
            }
            let known: Vec<_> = all().flat_map(options).map(variable).collect();
            let why =
                format!("no option has this variable{}", nearest(name, known.iter().map(String::as_str)));
            return Err(ConfigMistake::new(name, None, why));
        };
        let key = place::file_place(arg).map_or_else(String::new, |place| place.to_string());
        let origin = Origin::Environment(name.clone());
        if is_flag(arg) && !["true", "false"].contains(&value.as_str()) {
            return Err(ConfigMistake::new(
                name,
                None,
                format_args!("wanted true or false, found '{value}'"),
            ));
        }
        let values: Vec<&str> =
            if is_list(arg) { value.split_whitespace().collect() } else { vec![value.as_str()] };
        let id = arg.get_id().to_string();
        settings.extend(values.into_iter().map(|value| Setting {
            id: id.clone(),
            key: key.clone(),
            value: value.to_owned(),
            origin: origin.clone(),
            ports: Vec::new(),
        }));
    }
    Ok(settings)
}

fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let scored = known.map(|other| (strsim::jaro(name, other), other));
    match scored.max_by(|(one, _), (other, _)| one.total_cmp(other)) {
        Some((score, other)) if score > 0.7 => format!("; did you mean '{other}'?"),
        _ => String::new(),
    }
}

fn check(command: &Command, setting: &Setting) -> Result<(), ConfigMistake> {
    let Some(arg) = command.get_arguments().find(|arg| arg.get_id() == setting.id.as_str()) else {
        return Ok(());
    };
    let Some(word) = word(arg, &setting.value) else { return Ok(()) };
    let alone = command.clone().no_binary_name(true).try_get_matches_from([word.clone()]);
    match alone {
        // A missing companion option is reported when the whole is parsed.
        Err(error) if is_about_value(&error) => {
            let why = said(&error, arg);
            Err(ConfigMistake::new(&setting.origin, Some(&setting.key), why))
        }
        _ => Ok(()),
    }
}

fn is_about_value(error: &clap::Error) -> bool {
    !matches!(
        error.kind(),
        ErrorKind::MissingRequiredArgument | ErrorKind::ArgumentConflict | ErrorKind::MissingSubcommand
    )
}

fn paragraph(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect::<Vec<_>>().join(" ")
}

/// The text of a clap error about a value, without the option's name and the usage.
fn said(error: &clap::Error, arg: &Arg) -> String {
    let text = paragraph(error);
    match text.split_once(&format!(" for '--{}", arg.get_long().unwrap_or_default())) {
        Some((before, rest)) => format!("{before}{}", rest.split_once('\'').map_or("", |(_, rest)| rest)),
        None => text,
    }
}

pub(crate) fn environment() -> Vec<(String, String)> {
    let text = |text: OsString| text.to_str().map(str::to_owned);
    let of_ours = |name: &OsStr| name.to_str().is_some_and(|name| name.starts_with(PREFIX));
    let ours = std::env::vars_os().filter(|(name, _)| of_ours(name));
    ours.filter_map(|(name, value)| Some((text(name)?, text(value)?))).collect()
}

#[cfg(any(test, feature = "testing"))]
pub(crate) fn test_program() -> Command {
    use crate::cli::args::{ReplayArgs, RunArgs};
    use clap::Args as _;
    let run = RunArgs::augment_args(Command::new("run"));
    Command::new("fwd-app").subcommand(run).subcommand(ReplayArgs::augment_args(Command::new("replay")))
}

/// The effective options of `text` as the only file of a command, without origins.
///
/// # Errors
/// The message about a mistake.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn test_show(command: &str, text: &str) -> Result<String, String> {
    let program = test_program();
    let words: Vec<OsString> = ["fwd-app", command].map(OsString::from).to_vec();
    let options = options_of(&program, command).ok_or("no such command")?;
    let read = file::settings(&program, &options, Path::new("FILE"), text);
    let layers = Layers { settings: read.map_err(|error| error.to_string())?, ..Layers::default() };
    layers
        .settings
        .iter()
        .try_for_each(|setting| check(&options, setting))
        .map_err(|error| error.to_string())?;
    let matches = program.clone().try_get_matches_from(layers.merge(&program, &words));
    let matches = matches.map_err(|error| error.to_string())?;
    let given = matches.subcommand_matches(command).ok_or("no such command")?;
    Ok(show::toml(&show::shown(&options, given, &layers), false))
}
