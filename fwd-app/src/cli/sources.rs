//! The order of preference of the sources of routes: by `--prefer`, else by the order of their options on the command line.

use clap::parser::ValueSource;
use clap::{ArgGroup, ArgMatches, Args, Command, FromArgMatches, ValueEnum};

/// A source of routes that the command line names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SourceOption {
    /// Route files of --fib, with --updates.
    Fib,
    /// Routes of --fpm.
    Fpm,
    /// Routes of --kernel-routes.
    KernelRoutes,
}

impl SourceOption {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fib => "fib",
            Self::Fpm => "fpm",
            Self::KernelRoutes => "kernel-routes",
        }
    }
}

/// First by `--prefer`, then by their first mention. It reads options of other groups, so it precedes them in its command's struct.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SourceOrder(pub(crate) Vec<SourceOption>);

impl FromArgMatches for SourceOrder {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let first = |id: &str| {
            let is_given = matches.value_source(id) == Some(ValueSource::CommandLine);
            is_given.then(|| matches.index_of(id)).flatten()
        };
        // The routes of an update stream belong to the files.
        let mut order = vec![
            (first("fib").or_else(|| first("updates")), SourceOption::Fib),
            (first("fpm"), SourceOption::Fpm),
            (first("kernel_routes"), SourceOption::KernelRoutes),
        ];
        let preferred: Vec<SourceOption> = matches.get_many("prefer").unwrap_or_default().copied().collect();
        let rank = |source| preferred.iter().position(|first| *first == source).unwrap_or(preferred.len());
        order.retain(|(index, _)| index.is_some());
        order.sort_by_key(|(index, source)| (rank(*source), *index));
        Ok(Self(order.into_iter().map(|(_, source)| source).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for SourceOrder {
    fn augment_args(command: Command) -> Command {
        command.group(
            ArgGroup::new("sources").args(["fib", "fpm", "kernel_routes"]).required(true).multiple(true),
        )
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::RunArgs;
    use clap::Parser;

    #[derive(Parser)]
    struct TestLine {
        #[command(flatten)]
        run: RunArgs,
    }

    fn order(words: &str) -> Result<Vec<SourceOption>, String> {
        let line = TestLine::try_parse_from(words.split(' ')).map_err(|error| error.to_string())?;
        Ok(line.run.order.0)
    }

    #[test]
    fn sources_are_in_the_order_in_which_they_are_named_first() {
        use SourceOption::{Fib, Fpm, KernelRoutes};
        assert_eq!(
            order("run --fib a --fpm 127.0.0.1:1 --kernel-routes --fib b"),
            Ok(vec![Fib, Fpm, KernelRoutes])
        );
        assert_eq!(order("run --kernel-routes --fib a --fpm 127.0.0.1:1"), Ok(vec![KernelRoutes, Fib, Fpm]));
        assert_eq!(
            order("run --fpm=127.0.0.1:1 --updates u --kernel-routes"),
            Ok(vec![Fpm, Fib, KernelRoutes])
        );
        assert_eq!(order("run --updates u --fpm 127.0.0.1:1 --fib a"), Ok(vec![Fpm, Fib]));
        assert_eq!(order("run --kernel-routes"), Ok(vec![KernelRoutes]));
    }

    #[test]
    fn a_list_of_preferences_comes_before_the_order_of_options() {
        use SourceOption::{Fib, Fpm, KernelRoutes};
        let all = "--fib a --kernel-routes --fpm 127.0.0.1:1";
        let line = format!("run {all} --prefer fpm,kernel-routes,fib");
        assert_eq!(order(&line), Ok(vec![Fpm, KernelRoutes, Fib]));
        assert_eq!(order(&format!("run --prefer fpm {all}")), Ok(vec![Fpm, Fib, KernelRoutes]));
        assert_eq!(order("run --prefer fpm,fib --fib a"), Ok(vec![Fib]));
        assert!(order("run --fib a --prefer bgp").unwrap_err().contains("kernel-routes"));
    }

    #[test]
    fn without_any_source_all_of_them_are_named() {
        let error = order("run --batch 32").unwrap_err();
        for option in ["--fib <FILE>", "--fpm <ADDR:PORT>", "--kernel-routes"] {
            assert!(error.contains(option), "{error}");
        }
    }
}
