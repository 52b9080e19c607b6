//! Commands that change or show a setting.

use std::{path::PathBuf, sync::Arc};

use serde_json::json;
use wire::ftp::Text;

use super::{
    app::{App, Done, Trouble},
    args::{block_size, width},
    command::Given,
};
use crate::{Spoken, Trace, names};

impl App {
    /// Commands that change or show a setting.
    pub(super) async fn set(&mut self, given: &Given) -> Done {
        let name = given.command.name;
        let word = given.word(0).map(str::to_ascii_lowercase);
        let switch = |now: bool| match word.as_deref() {
            None => Ok(!now),
            Some("on" | "yes" | "1") => Ok(true),
            Some("off" | "no" | "0") => Ok(false),
            Some(_) => Err(Trouble::Said(format!("usage: {}", given.command.usage))),
        };
        let shown = match name {
            "setpwidth" => {
                if let Some(word) = &word {
                    self.width = width(word).map_err(Trouble::Said)?;
                }
                self.shown_width()
            }
            "setpblocksize" => {
                if let Some(word) = &word {
                    self.how.block_bytes = block_size(word).map_err(Trouble::Said)?;
                }
                self.how.block_bytes.to_string()
            }
            "autop" => {
                self.autop = switch(self.autop)?;
                on_off(self.autop)
            }
            "passive" => {
                self.how.passive = switch(self.how.passive)?;
                on_off(self.how.passive)
            }
            "progress" => {
                self.output.progress = switch(self.output.progress)?;
                on_off(self.output.progress)
            }
            "verbose" => {
                let verbose = switch(self.verbose)?;
                self.set_verbose(verbose);
                on_off(verbose)
            }
            "prot" => self.protection(word.as_deref()).await?,
            _ => return self.status(),
        };
        self.output.result(&format!("{name}: {shown}"), || json!({"event": "setting", "name": name, "value": shown}));
        Ok(())
    }

    async fn protection(&mut self, word: Option<&str>) -> Result<String, Trouble> {
        if let Some(word) = word {
            let private = match word {
                "private" | "p" => true,
                "clear" | "c" => false,
                _ => return Err(Trouble::Said("usage: prot [clear|private]".to_owned())),
            };
            self.session().await?.set_private_data(private).await?;
            self.options.private_data = private;
        }
        Ok(if self.options.private_data { "private" } else { "clear" }.to_owned())
    }

    pub(super) fn set_class_of_service(&mut self, class: Text) {
        self.options.class_of_service = Some(class);
    }

    fn status(&self) -> Done {
        let server =
            self.session.as_ref().map_or_else(|| "not connected".to_owned(), |_| self.options.target.to_string());
        let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("?"));
        let class = self.options.class_of_service.as_ref().map_or("the folder's", Text::as_str);
        let text = format!(
            "server: {server}\nfolder there: {}\nfolder here: {}\nstreams: {}\nblock: {} bytes\nparallel by itself: {}\n\
             passive: {}\ndata connections: {}\nclass of service: {class}",
            names::printable(&self.folder),
            here.display(),
            self.shown_width(),
            self.how.block_bytes,
            on_off(self.autop),
            on_off(self.how.passive),
            if self.options.private_data { "private" } else { "clear" },
        );
        self.output.result(&text, || {
            json!({"event": "status", "server": server, "folder": self.folder, "local_folder": here, "streams": self.width,
                "block_bytes": self.how.block_bytes, "autop": self.autop, "passive": self.how.passive,
                "private": self.options.private_data})
        });
        Ok(())
    }

    pub(super) fn set_verbose(&mut self, on: bool) {
        self.verbose = on;
        let output = self.output.clone();
        let trace: Option<Trace> = on.then(|| -> Trace {
            Arc::new(move |spoken| match spoken {
                Spoken::Sent(line) => output.note(&format!("---> {}", names::printable(line))),
                Spoken::Received(reply) => {
                    for line in reply.lines() {
                        output.note(&format!("<--- {} {}", reply.code(), names::printable(line)));
                    }
                }
            })
        });
        self.options.trace.clone_from(&trace);
        if let Some(session) = &mut self.session {
            session.set_trace(trace);
        }
    }
}

fn on_off(on: bool) -> String {
    if on { "on" } else { "off" }.to_owned()
}
