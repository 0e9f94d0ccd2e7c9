//! Man pages and completions, which packages install: made of the same flags as `--help`.

use std::io;

use clap::{Command, ValueEnum};
use clap_complete::Shell;

/// What `tito generate` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Generated {
    /// A man page
    Man,
    /// Completions for bash
    Bash,
    /// Completions for fish
    Fish,
    /// Completions for zsh
    Zsh,
}

impl Generated {
    /// The text, for all that `tito` takes. A man page is of this one of its commands, or of `tito` itself.
    ///
    /// Flags of vLLM that mean nothing here are in none of them, as they are not in `--help`.
    pub(super) fn of(self, mut all: Command, command: Option<&str>) -> io::Result<Vec<u8>> {
        let shell = match self {
            Self::Man => return man_page(all, command),
            Self::Bash => Shell::Bash,
            Self::Fish => Shell::Fish,
            Self::Zsh => Shell::Zsh,
        };
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut all, "tito", &mut text);
        Ok(text)
    }
}

fn man_page(all: Command, command: Option<&str>) -> io::Result<Vec<u8>> {
    // `tito help` has no page of its own.
    let mut all = all.disable_help_subcommand(true);
    // Flags that all commands have are then in each of them.
    all.build();
    let shown = match command {
        None => all,
        Some(name) => {
            let found = all.find_subcommand(name).filter(|found| !found.is_hide_set());
            let found =
                found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no command is called {name}")))?;
            found.clone().name(format!("tito-{name}"))
        }
    };
    let mut text = Vec::new();
    let source = concat!("tito ", env!("CARGO_PKG_VERSION"));
    clap_mangen::Man::new(shown).manual("tito").source(source).render(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::config::Arguments;

    const ALL: [Generated; 4] = [Generated::Man, Generated::Bash, Generated::Fish, Generated::Zsh];

    fn text(what: Generated, command: Option<&str>) -> String {
        String::from_utf8(Arguments::generated(what, command).unwrap()).unwrap()
    }

    #[test]
    fn every_flag_that_help_shows_is_in_the_man_page_and_in_all_completions() {
        let command = Arguments::command();
        let serve = command.find_subcommand("serve").unwrap();
        let shown: Vec<_> =
            serve.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(|arg| arg.get_long()).collect();
        assert!(shown.len() > 100 && shown.contains(&"shutdown-delay"), "{shown:?}");
        for what in ALL {
            let text = text(what, (what == Generated::Man).then_some("serve"));
            for flag in &shown {
                // roff and fish write dashes in their own ways.
                let spelled =
                    [format!("--{flag}"), format!("\\-\\-{}", flag.replace('-', "\\-")), format!("-l {flag}")];
                assert!(spelled.iter().any(|spelled| text.contains(spelled)), "{what:?} has no --{flag}");
            }
        }
    }

    #[test]
    fn what_help_hides_is_hidden() {
        for what in ALL {
            assert!(!text(what, None).contains("pipeline"), "{what:?}: a flag of vLLM that means nothing here");
        }
        let page = text(Generated::Man, None);
        assert!(!page.contains("try\\-kernels") && !page.contains("tito\\-help"), "{page}");
        assert!(page.contains("tito\\-serve"), "{page}");
        let error = Arguments::generated(Generated::Man, Some("try-kernels")).unwrap_err();
        assert_eq!(error.to_string(), "no command is called try-kernels");
    }

    #[test]
    fn a_page_of_a_command_has_its_name_and_what_the_environment_says_is_not_in_it() {
        let page = text(Generated::Man, Some("serve"));
        assert!(page.contains(".TH tito-serve 1") && page.contains("Serve a model over HTTP"), "{page:.400}");
        assert!(!page.contains("[env:"), "values of the environment may be secrets");
    }
}
