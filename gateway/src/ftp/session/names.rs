//! Commands about names: what they ask for, with paths settled.
//!
//! Owns the translation from verbs to [`NameWork`] and [`Question`]s, and the SITE commands. Never looks whether
//! anything is there.

use wire::ftp::{Command, Reply, SiteCommand};

use super::{
    Action, Session, answers,
    work::{ListForm, NameWork, Question, Work},
};

impl Session {
    pub(super) fn name_work(&mut self, command: Command, actions: &mut Vec<Action>) {
        match command {
            Command::Pwd => {
                let reply = Reply::directory(self.directory.as_str(), "is the current directory.");
                self.lane.answer(reply, actions);
            }
            Command::Cdup => {
                let parent = self.directory.parent();
                self.run("CDUP", Work::Names(NameWork::Enter(parent)), actions);
            }
            Command::Cwd(path) => {
                self.with_path("CWD", Some(&path), actions, |path| Work::Names(NameWork::Enter(path)))
            }
            Command::Rnfr(path) => {
                self.with_path("RNFR", Some(&path), actions, |path| Work::Names(NameWork::BeginRename(path)));
            }
            Command::Dele(path) => {
                self.with_path("DELE", Some(&path), actions, |path| Work::Names(NameWork::Delete(path)));
            }
            Command::Rmd(path) => {
                self.with_path("RMD", Some(&path), actions, |path| Work::Names(NameWork::RemoveDirectory(path)));
            }
            Command::Mkd(path) => self.with_path("MKD", Some(&path), actions, |path| Work::Names(NameWork::Make(path))),
            Command::Mfmt { time, path } => self.with_path("MFMT", Some(&path), actions, |path| {
                Work::Names(NameWork::SetModified { path, time, verb: "MFMT" })
            }),
            _ => unreachable!("begin sends the commands above"),
        }
    }

    pub(super) fn question(&mut self, command: Command, actions: &mut Vec<Action>) {
        let facts = self.settings.facts;
        let hash = self.settings.hash;
        let here = self.directory.as_str().to_owned();
        match command {
            Command::Stat(None) => {
                let status = self.status();
                self.lane.answer(status, actions);
            }
            Command::Size(path) => self.with_path("SIZE", Some(&path), actions, |path| Work::Ask(Question::Size(path))),
            Command::Mdtm(path) => {
                self.with_path("MDTM", Some(&path), actions, |path| Work::Ask(Question::Modified(path)));
            }
            Command::Mlst(path) => {
                let named = path.as_ref().map_or(here, |path| path.as_str().to_owned());
                self.with_path("MLST", path.as_ref(), actions, |path| {
                    Work::Ask(Question::Facts { path, named, facts })
                });
            }
            Command::Mlsc(path) => {
                self.with_path("MLSC", path.as_ref(), actions, |path| Work::Show { path, form: ListForm::Facts(facts) })
            }
            Command::Stat(path) => {
                self.with_path("STAT", path.as_ref(), actions, |path| Work::Show { path, form: ListForm::Long })
            }
            Command::Cksm { algorithm, offset_bytes, length_bytes, path } => {
                self.with_path("CKSM", Some(&path), actions, |path| {
                    Work::Ask(Question::Checksum { path, algorithm, offset_bytes, length_bytes })
                });
            }
            Command::Hash(path) => {
                let named = path.as_str().to_owned();
                self.with_path("HASH", Some(&path), actions, |path| {
                    Work::Ask(Question::Hash { path, named, algorithm: hash })
                });
            }
            _ => unreachable!("begin sends the commands above"),
        }
    }

    pub(super) fn site(&mut self, site: SiteCommand, actions: &mut Vec<Action>) {
        const VERB: &str = "SITE";
        match site {
            SiteCommand::Help(_) => self.lane.answer(answers::site_help(), actions),
            SiteCommand::SetCos(class) => self.run(VERB, Work::ChooseCos(class), actions),
            SiteCommand::ListCos => self.run(VERB, Work::Ask(Question::Classes), actions),
            SiteCommand::Stage { wait_seconds, path } => {
                self.with_path(VERB, Some(&path), actions, |path| Work::Stage { path, wait_seconds });
            }
            SiteCommand::Wait(on) => {
                self.settings.wait = Some(on);
                let text = if on { "A read of a file on tape waits." } else { "A read of a file on tape is refused." };
                self.say(200, text, actions);
            }
            SiteCommand::Chmod { mode, path } => {
                self.with_path(VERB, Some(&path), actions, |path| Work::Names(NameWork::SetMode { path, mode }))
            }
            SiteCommand::Chgrp { group, path } => {
                self.with_path(VERB, Some(&path), actions, |path| Work::Names(NameWork::SetGroup { path, group }))
            }
            SiteCommand::Chown { user, path } => {
                self.with_path(VERB, Some(&path), actions, |path| Work::Names(NameWork::SetOwner { path, owner: user }))
            }
            SiteCommand::Utime { time, path } => self.with_path(VERB, Some(&path), actions, |path| {
                Work::Names(NameWork::SetModified { path, time, verb: VERB })
            }),
            SiteCommand::Symlink { .. } => self.say(502, "There are no symbolic links in this name space.", actions),
            SiteCommand::ClientInfo(_) => self.say(250, "OK.", actions),
            SiteCommand::RetrieveBuffer(bytes) | SiteCommand::StoreBuffer(bytes) | SiteCommand::Buffer(bytes) => {
                self.buffer(bytes, actions);
            }
            SiteCommand::SetNetStack(stack) => {
                if matches!(stack.as_str().to_ascii_lowercase().as_str(), "default" | "tcp") {
                    self.say(250, "The only stack is TCP.", actions);
                } else {
                    self.say(504, "The only stack is TCP.", actions);
                }
            }
            SiteCommand::Usage { path, .. } => {
                self.with_path(VERB, Some(&path), actions, |path| Work::Ask(Question::Usage(path)));
            }
            SiteCommand::Partial(path) => {
                self.with_path(VERB, Some(&path), actions, |path| Work::Ask(Question::Partial(path)));
            }
            _ => self.say(504, "That SITE command is not offered: SITE HELP lists what is.", actions),
        }
    }
}
