//! `fwd-app completions`: a script with which a shell completes the commands and options of this program.

use crate::report::output;
use clap::{Args, Command};
use clap_complete::Shell;

/// Examples below `fwd-app completions --help`.
pub(crate) const EXAMPLES: &str = "\
Examples:
  fwd-app completions bash > /etc/bash_completion.d/fwd-app
  fwd-app completions zsh > ~/.zfunc/_fwd-app";

/// `fwd-app completions`.
#[derive(Clone, Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Prints the script for the program whose command line is `program`.
pub(crate) fn main(args: &CompletionsArgs, mut program: Command) -> anyhow::Result<()> {
    let name = program.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut program, name, &mut script);
    output::write_to(None, |out| Ok(out.write_all(&script)?))
}
