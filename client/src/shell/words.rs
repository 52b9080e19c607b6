//! Splits what a user types into commands and words.
//!
//! Owns the quoting rules: `'…'`, `"…"` and `\` as in a shell; `;` and line ends separate commands; `#` begins a comment.

use std::fmt;

/// One word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: String,
    /// Some of it was quoted: `*` in it is no pattern.
    pub(super) quoted: bool,
}

/// A quote without its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OpenQuote(char);

impl fmt::Display for OpenQuote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the quote {} is not closed", self.0)
    }
}

/// The commands of a script, each as it was written.
pub(super) fn lines(script: &str) -> Vec<String> {
    let mut commands = Vec::new();
    for line in script.lines() {
        // A shell's line is the shell's, semicolons and all.
        if line.trim_start().starts_with('!') {
            commands.push(line.to_owned());
            continue;
        }
        let mut start = 0;
        let mut quote: Option<char> = None;
        let mut escaped = false;
        for (index, character) in line.char_indices() {
            match (quote, character) {
                _ if escaped => escaped = false,
                (None | Some('"'), '\\') => escaped = true,
                (Some(open), _) if open == character => quote = None,
                (Some(_), _) => {}
                (None, '\'' | '"') => quote = Some(character),
                (None, ';') => {
                    commands.push(line[start..index].to_owned());
                    start = index + 1;
                }
                (None, _) => {}
            }
        }
        commands.push(line[start..].to_owned());
    }
    commands.retain(|command| !command.trim().is_empty() && !command.trim_start().starts_with('#'));
    commands
}

/// The words of a command.
pub(super) fn split(line: &str) -> Result<Vec<Word>, OpenQuote> {
    let mut words = Vec::new();
    let mut word: Option<Word> = None;
    let mut quote: Option<char> = None;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        let begun = |word: &mut Option<Word>| {
            word.get_or_insert_with(|| Word { text: String::new(), quoted: false });
        };
        match (quote, character) {
            (None | Some('"'), '\\') => {
                begun(&mut word);
                if let Some(word) = &mut word {
                    word.text.extend(characters.next());
                    word.quoted = true;
                }
            }
            (Some(open), _) if open == character => quote = None,
            (None, '\'' | '"') => {
                begun(&mut word);
                quote = Some(character);
                if let Some(word) = &mut word {
                    word.quoted = true;
                }
            }
            (None, _) if character.is_whitespace() => words.extend(word.take()),
            _ => {
                begun(&mut word);
                if let Some(word) = &mut word {
                    word.text.push(character);
                }
            }
        }
    }
    if let Some(open) = quote {
        return Err(OpenQuote(open));
    }
    words.extend(word);
    Ok(words)
}

/// Writes a name so that [`split`] reads it back.
pub(super) fn quote(name: &str) -> String {
    let mut quoted = String::with_capacity(name.len());
    for character in name.chars() {
        if character.is_whitespace() || matches!(character, '\\' | '\'' | '"' | ';' | '*' | '?' | '[') {
            quoted.push('\\');
        }
        quoted.push(character);
    }
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(line: &str) -> Vec<String> {
        split(line).unwrap().into_iter().map(|word| word.text).collect()
    }

    #[test]
    fn words_are_split_and_quoted_as_in_a_shell() {
        assert_eq!(texts("get  a\\ b 'c d' \"e \\\" f\" ''"), ["get", "a b", "c d", "e \" f", ""]);
        assert!(split("get 'a").is_err());
        assert!(split("mget '*.txt'").unwrap()[1].quoted && !split("mget *.txt").unwrap()[1].quoted);
        for name in ["a b", "it's", "*", "a;b", "a\\b", "é"] {
            assert_eq!(texts(&quote(name)), [name]);
        }
    }

    #[test]
    fn scripts_are_split_at_semicolons_and_lines() {
        let script = "cd a; get 'x;y'\n# comment\n\n!echo a; echo b\n ls ;";
        assert_eq!(lines(script), ["cd a", " get 'x;y'", "!echo a; echo b", " ls "]);
    }
}
