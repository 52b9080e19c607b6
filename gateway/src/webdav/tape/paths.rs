//! Calls about paths: taking files of a request back, giving them back, and asking where they are.

use std::collections::{HashMap, HashSet};

use catalog::{Bulk, BulkFile};
use hyper::{Request, StatusCode, body::Incoming};

use super::{
    check_lengths, invalid,
    messages::{ArchiveInfo, Paths},
    sameness,
};
use crate::{
    identity::Principal,
    webdav::{
        Door,
        answer::{self, Answer, Refusal, empty},
    },
};

impl Door {
    pub(super) async fn cancel(
        &self,
        who: &Principal,
        id: &str,
        request: Request<Incoming>,
    ) -> Result<Answer, Refusal> {
        let bulk = self.own(who, id).await?;
        let paths = self.paths(request).await?;
        let requests = of(&bulk, &paths)?.into_iter().filter_map(|file| Some(file.request?.0)).collect();
        self.hsm.cancel(requests, None).await?;
        Ok(empty(StatusCode::OK))
    }

    /// Gives files back. Clients that have lost the number say one that nobody knows: then the caller's requests for these
    /// paths are meant, whichever they were.
    pub(super) async fn release(
        &self,
        who: &Principal,
        id: &str,
        request: Request<Incoming>,
    ) -> Result<Answer, Refusal> {
        let bulk = match self.own(who, id).await {
            Err(refusal) if refusal.status == StatusCode::NOT_FOUND => None,
            found => Some(found?),
        };
        let paths = self.paths(request).await?;
        if let Some(bulk) = bulk {
            let requests = of(&bulk, &paths)?.into_iter().filter_map(|file| Some(file.request?.0)).collect();
            self.hsm.release_requests(requests, None).await?;
            return Ok(empty(StatusCode::OK));
        }
        // What cannot be found was not staged for the caller, so that there is nothing to give back.
        let found = self.look(who, paths).await?;
        let bitfiles = found.iter().filter_map(|(_, item)| Some(item.as_ref().ok()?.entry.file()?.bitfile));
        self.hsm.release_for(bitfiles.collect(), &who.account).await?;
        Ok(empty(StatusCode::OK))
    }

    pub(super) async fn archive_info(&self, who: &Principal, request: Request<Incoming>) -> Result<Answer, Refusal> {
        let Paths { mut paths } = self.body(request).await?;
        check_lengths(&paths)?;
        // More than is answered at a time is no error: the client asks for the rest.
        paths.truncate(self.config.tape_rest.max_paths as usize);
        let found = self.look(who, paths).await?;
        let bitfile = |item: &crate::files::Item| item.entry.file().map(|file| file.bitfile);
        let bitfiles: Vec<_> = found.iter().filter_map(|(_, item)| bitfile(item.as_ref().ok()?)).collect();
        let places = self.hsm.localities(&bitfiles).await?;
        let told = found.into_iter().map(|(path, item)| {
            let place = match item {
                Ok(item) => bitfile(&item)
                    .and_then(|bitfile| places.get(&bitfile))
                    .copied()
                    .ok_or_else(|| format!("{path} was deleted or replaced a moment ago: ask again")),
                Err(failure) => Err(failure.message().to_owned()),
            };
            let (locality, error) = match place {
                Ok(place) => (Some(place.name()), None),
                Err(error) => (None, Some(error)),
            };
            ArchiveInfo { path, locality, error }
        });
        Ok(answer::json(StatusCode::OK, &told.collect::<Vec<_>>()))
    }

    async fn paths(&self, request: Request<Incoming>) -> Result<Vec<String>, Refusal> {
        let Paths { paths } = self.body(request).await?;
        check_lengths(&paths)?;
        if paths.len() > self.config.tape_rest.max_files as usize {
            return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "no stage request has so many files"));
        }
        Ok(paths)
    }
}

/// The files of a request that these paths name; one that is not in it, and nothing is done.
fn of<'a>(bulk: &'a Bulk, paths: &[String]) -> Result<Vec<&'a BulkFile>, Refusal> {
    let files: HashMap<_, _> = bulk.files.iter().map(|file| (sameness(&file.path), file)).collect();
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    for path in paths {
        let same = sameness(path);
        let missing = || invalid(format!("{path} is not in stage request {}", bulk.id));
        let file = files.get(&same).ok_or_else(missing)?;
        if seen.insert(same) {
            found.push(*file);
        }
    }
    Ok(found)
}
