//! Command lines in README.md, docs and help texts, which a program's tests parse, so that renamed options are renamed there.

use std::path::Path;

/// A command line of a program in a text.
#[derive(Debug)]
pub struct CommandLine {
    /// File and line.
    pub place: String,
    /// The words from the program's name on, without quotes, comments and what the shell takes.
    pub words: Vec<String>,
    /// Whether it is within a sentence, where it may be cut short.
    pub is_inline: bool,
}

/// Words that may come before the program's name.
const BEFORE: [&str; 5] = ["ip", "sudo", "exec", "timeout", "do"];

/// The command lines of `program` in `text`, which is at `place`. A backslash continues a line.
#[must_use]
pub fn command_lines(place: &str, text: &str, program: &str) -> Vec<CommandLine> {
    let mut found = Vec::new();
    let mut whole = String::new();
    for (number, line) in (1..).zip(text.lines()) {
        if let Some(start) = line.strip_suffix('\\') {
            whole.push_str(start);
            continue;
        }
        whole.push_str(line);
        for piece in
            whole.split("; ").flat_map(|piece| piece.split(" && ")).flat_map(|piece| piece.split(" | "))
        {
            if let Some(words) = words_of(piece, program) {
                found.push(CommandLine { place: format!("{place}:{number}"), words, is_inline: false });
            }
        }
        whole.clear();
    }
    found
}

fn words_of(piece: &str, program: &str) -> Option<Vec<String>> {
    let words = shlex::split(piece)?;
    let is_program = |word: &String| word == program || word.ends_with(&format!("/{program}"));
    let at = words.iter().position(is_program)?;
    (at == 0 || BEFORE.contains(&words[0].as_str())).then(|| {
        let ours = words[at + 1..].iter().take_while(|word| *word != "&" && !word.starts_with(['<', '>']));
        std::iter::once(program)
            .chain(ours.map(String::as_str).filter(|word| *word != ".."))
            .map(str::to_owned)
            .collect()
    })
}

/// The code spans of `text` that begin with `start`, without alternatives and placeholders in capitals.
fn inline(place: &str, text: &str, start: &str) -> Vec<CommandLine> {
    let mut line = 1;
    let mut found = Vec::new();
    for (number, span) in text.split('`').enumerate() {
        let is_whole = |word: &str| {
            !word.contains(['|', '[', '('])
                && word != ".."
                && word.chars().any(|c| !c.is_ascii_uppercase() && !",.=/:".contains(c))
        };
        if number % 2 == 1 && span.starts_with(start) && span.split_whitespace().all(is_whole) {
            let words = shlex::split(span).unwrap_or_default();
            found.push(CommandLine { place: format!("{place}:{line}"), words, is_inline: true });
        }
        line += span.matches('\n').count();
    }
    found
}

/// The command lines of `program` in README.md and docs, in code blocks and in sentences.
#[must_use]
#[expect(clippy::unwrap_used, reason = "a test fails loudly")]
pub fn documented(program: &str) -> Vec<CommandLine> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut pages = vec![top.join("README.md")];
    let entries = std::fs::read_dir(top.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    pages.extend(entries.filter(|path| path.extension().is_some_and(|kind| kind == "md")));
    pages.sort();
    let mut found = Vec::new();
    for page in pages {
        let (mut blocks, mut sentences, mut is_block) = (String::new(), String::new(), false);
        for line in std::fs::read_to_string(&page).unwrap().lines() {
            let is_fence = line.trim_start().starts_with("```");
            is_block ^= is_fence;
            let (own, other) =
                if is_block { (&mut blocks, &mut sentences) } else { (&mut sentences, &mut blocks) };
            own.push_str(if is_fence { "" } else { line });
            own.push('\n');
            other.push('\n');
        }
        let place = page.file_name().unwrap().to_string_lossy().into_owned();
        found.extend(command_lines(&place, &blocks, program));
        found.extend(inline(&place, &sentences, &format!("{program} ")));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_whatever_stands_around_them() {
        let text = "\
a run b            # another program
a ctl stop; a ctl start   # and back
ip netns exec x target/a run --to 'b c' \\
  -- -l 1 .. >/dev/null &
cat a | a lookup < file
echo a run
";
        let found = command_lines("page", text, "a");
        let lines: Vec<_> = found.iter().map(|line| (line.place.as_str(), line.words.join(" "))).collect();
        let wanted = [
            ("page:1", "a run b"),
            ("page:2", "a ctl stop"),
            ("page:2", "a ctl start"),
            ("page:4", "a run --to b c -- -l 1"),
            ("page:5", "a lookup"),
        ];
        assert_eq!(lines, wanted.map(|(place, line)| (place, line.to_owned())));
    }

    #[test]
    fn code_in_sentences_is_taken_when_it_is_whole() {
        let found = inline("page", "Run `a show x\n y`, `a show NAME`, `a b|c` and `b c`;\n`a z`.", "a ");
        let lines: Vec<_> = found.iter().map(|line| (line.place.as_str(), line.words.join(" "))).collect();
        assert_eq!(lines, [("page:1", "a show x y".to_owned()), ("page:3", "a z".to_owned())]);
    }
}
