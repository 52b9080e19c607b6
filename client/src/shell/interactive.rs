//! The interactive session: history, completion, prompt.
//!
//! Owns the terminal while a line is typed; while a command runs, nobody reads it and Ctrl-C is a signal.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use rustyline::{
    CompletionType, Config, Context, Editor, Helper, Highlighter, Hinter, Validator,
    completion::{Completer, Pair},
    error::ReadlineError,
};
use tokio::runtime::Handle;

use super::{
    app::{App, Flow},
    command::{COMMANDS, Takes, find},
    output::complain,
    words,
};

/// Lines kept from earlier sessions.
const HISTORY: usize = 2000;

/// Runs until the user ends it; gives the exit status.
pub(super) fn run(runtime: &tokio::runtime::Runtime, app: App) -> u8 {
    let app = Arc::new(Mutex::new(app));
    let config = Config::builder().completion_type(CompletionType::List).auto_add_history(true);
    let config = match config.max_history_size(HISTORY) {
        Ok(config) => config.build(),
        Err(_) => Config::default(),
    };
    let mut editor: Editor<Names, _> = match Editor::with_config(config) {
        Ok(editor) => editor,
        Err(error) => {
            complain(&format!("use the terminal: {error}"));
            return super::UNUSABLE;
        }
    };
    editor.set_helper(Some(Names { app: app.clone(), runtime: runtime.handle().clone() }));
    let history = history_file();
    if let Some(file) = &history {
        // A first session has none.
        let _ = editor.load_history(file);
    }
    let lock = || app.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let prompt = lock().prompt();
        match editor.readline(&prompt) {
            Ok(line) => {
                for command in words::lines(&line) {
                    // Not in the match: the lock would be held in its arms.
                    let flow = runtime.block_on(lock().execute(&command));
                    match flow {
                        Flow::Go => {}
                        Flow::Failed | Flow::Interrupted => break,
                        Flow::Quit => {
                            leave(&mut editor, history.as_deref());
                            runtime.block_on(lock().close());
                            return 0;
                        }
                    }
                }
            }
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => break,
            Err(error) => {
                complain(&format!("read from the terminal: {error}"));
                break;
            }
        }
    }
    leave(&mut editor, history.as_deref());
    runtime.block_on(lock().close());
    0
}

fn leave(editor: &mut Editor<Names, rustyline::history::DefaultHistory>, history: Option<&Path>) {
    if let Some(file) = history {
        // A history that cannot be kept is no reason to fail.
        let _ = editor.save_history(file);
    }
}

/// `$XDG_STATE_HOME/penstock/pftp_history`.
fn history_file() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = state.or_else(|| Some(std::env::home_dir()?.join(".local/state")))?.join("penstock");
    fs::create_dir_all(&folder).ok()?;
    Some(folder.join("pftp_history"))
}

/// Completes commands, and names on both sides.
#[derive(Helper, Hinter, Highlighter, Validator)]
struct Names {
    app: Arc<Mutex<App>>,
    runtime: Handle,
}

impl Completer for Names {
    type Candidate = Pair;

    fn complete(&self, line: &str, position: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let before = &line[..position];
        let start = last_word_start(before);
        let typed = words::split(&before[start..]).ok().and_then(|words| words.into_iter().next());
        let typed = typed.map(|word| word.text).unwrap_or_default();
        let index = words::split(&before[..start]).map_or(0, |words| words.len());
        if index == 0 {
            let names = COMMANDS.iter().map(|entry| entry.name).filter(|name| name.starts_with(&typed));
            return Ok((start, names.map(|name| pair(name, false, true)).collect()));
        }
        let name = before.split_whitespace().next().unwrap_or_default();
        let Ok(entry) = find(name) else { return Ok((start, Vec::new())) };
        let candidates = match (entry.takes, index) {
            (Takes::Words(words), _) => {
                words.iter().filter(|word| word.starts_with(&typed)).map(|word| pair(word, false, true)).collect()
            }
            (Takes::Command, _) => COMMANDS
                .iter()
                .filter(|entry| entry.name.starts_with(&typed))
                .map(|entry| pair(entry.name, false, true))
                .collect(),
            (Takes::Remote, _) | (Takes::RemoteLocal, 1) | (Takes::LocalRemote, 2..) => self.remote(&typed),
            (Takes::Local, _) | (Takes::LocalRemote, _) | (Takes::RemoteLocal, _) => local(&typed),
            (Takes::Nothing | Takes::Text, _) => Vec::new(),
        };
        Ok((start, candidates))
    }
}

impl Names {
    fn remote(&self, typed: &str) -> Vec<Pair> {
        let mut app = self.app.lock().unwrap_or_else(PoisonError::into_inner);
        let (folder, begun) =
            typed.rsplit_once('/').map_or(("", typed), |(_, begun)| (&typed[..=typed.len() - begun.len() - 1], begun));
        let Ok(path) = app.remote(folder) else { return Vec::new() };
        let names = self.runtime.block_on(app.names_for_completion(path.as_str()));
        names
            .into_iter()
            .filter(|(name, _)| name.starts_with(begun))
            .map(|(name, is_folder)| pair(&format!("{folder}{name}"), is_folder, false))
            .collect()
    }
}

fn local(typed: &str) -> Vec<Pair> {
    let (folder, begun) =
        typed.rsplit_once('/').map_or(("", typed), |(_, begun)| (&typed[..=typed.len() - begun.len() - 1], begun));
    let read = fs::read_dir(if folder.is_empty() { "." } else { folder });
    let mut found: Vec<Pair> = read
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path().is_dir())))
        .filter(|(name, _)| name.starts_with(begun) && (begun.starts_with('.') || !name.starts_with('.')))
        .map(|(name, is_folder)| pair(&format!("{folder}{name}"), is_folder, false))
        .collect();
    found.sort_by(|a, b| a.display.cmp(&b.display));
    found
}

fn pair(name: &str, is_folder: bool, ends: bool) -> Pair {
    let slash = if is_folder { "/" } else { "" };
    let space = if ends { " " } else { "" };
    let shown = crate::names::printable(name);
    let last = shown.rsplit('/').next().unwrap_or(&shown);
    Pair { display: format!("{last}{slash}"), replacement: format!("{}{slash}{space}", words::quote(name)) }
}

/// Where the word under the cursor begins: behind the last space that is not quoted.
fn last_word_start(before: &str) -> usize {
    let (mut start, mut quote, mut escaped) = (0, None, false);
    for (index, character) in before.char_indices() {
        match (quote, character) {
            _ if escaped => escaped = false,
            (None | Some('"'), '\\') => escaped = true,
            (Some(open), _) if open == character => quote = None,
            (None, '\'' | '"') => quote = Some(character),
            (None, ' ' | '\t') => start = index + 1,
            _ => {}
        }
    }
    start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_under_the_cursor_is_found_behind_quotes() {
        assert_eq!(last_word_start("get a\\ b"), 4);
        assert_eq!(last_word_start("get 'a b"), 4);
        assert_eq!(last_word_start("get x "), 6);
        assert_eq!(last_word_start(""), 0);
    }

    #[test]
    fn local_names_are_completed_with_their_folder() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("sub dir")).unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        let typed = format!("{}/su", folder.path().display());
        let found = local(&typed);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].display, "sub dir/");
        assert!(found[0].replacement.ends_with("/sub\\ dir/"));
    }
}
