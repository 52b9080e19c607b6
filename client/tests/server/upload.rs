//! The receiving half of the test server: blocks into memory.

use std::{io::Read, net::TcpStream};

use wire::{
    extent::Coverage,
    mode_e::{HEADER_BYTES, Header},
};

use super::{Endpoint, Session};

impl Session {
    pub(super) fn take_stream(&mut self, kept: &mut (Vec<u8>, Coverage)) -> std::io::Result<()> {
        let Endpoint::Passive(listeners) = &self.endpoint else { return Err(std::io::Error::other("no port")) };
        listeners[0].accept()?.0.read_to_end(&mut kept.0).map(drop)
    }

    pub(super) fn take_blocks(&mut self, kept: &mut (Vec<u8>, Coverage)) -> std::io::Result<()> {
        let limit = self.store.lock().unwrap().faults.cut_upload_after;
        let mut error = None;
        if !self.cached.is_empty() {
            let mut connection = self.cached.remove(0);
            let (announced, closes) = take_unit(&mut connection, kept, limit).inspect_err(|_| self.cut())?;
            assert_eq!(announced, Some(1));
            if !closes {
                self.cached.push(connection);
            }
            return Ok(());
        }
        let Endpoint::Passive(listeners) = &self.endpoint else { return Err(std::io::Error::other("no port")) };
        let mut reusable = Vec::new();
        for listener in listeners {
            let (mut ended, mut announced) = (0, None);
            while announced.is_none_or(|announced| ended < announced) {
                let (mut connection, _) = listener.accept()?;
                self.store.lock().unwrap().data_connections += 1;
                match take_unit(&mut connection, kept, limit) {
                    Ok((says, closes)) => {
                        announced = announced.or(says);
                        ended += 1;
                        if !closes {
                            reusable.push(connection);
                        }
                    }
                    Err(broke) => {
                        error = Some(broke);
                        break;
                    }
                }
            }
        }
        self.cached = reusable;
        if error.is_some() {
            self.cut();
        }
        error.map_or(Ok(()), Err)
    }

    /// A transfer was cut, once: there is no port any more.
    fn cut(&mut self) {
        self.store.lock().unwrap().faults.cut_upload_after = None;
        self.endpoint = Endpoint::None;
    }
}

/// Blocks of one connection up to its end mark: how many it announces, and whether it closes.
fn take_unit(
    connection: &mut TcpStream,
    kept: &mut (Vec<u8>, Coverage),
    limit: Option<usize>,
) -> std::io::Result<(Option<u64>, bool)> {
    let (mut announced, mut taken) = (None, 0);
    loop {
        let mut header = [0; HEADER_BYTES];
        connection.read_exact(&mut header)?;
        let (end, close) = match Header::decode(&header).map_err(std::io::Error::other)? {
            Header::Block { range, end_of_data, close } => {
                let (start, end) = (range.offset() as usize, range.end() as usize);
                if kept.0.len() < end {
                    kept.0.resize(end, 0);
                }
                connection.read_exact(&mut kept.0[start..end])?;
                if !range.is_empty() {
                    kept.1.add(range).map_err(std::io::Error::other)?;
                }
                taken += end - start;
                (end_of_data, close)
            }
            Header::EndOfFile { channels, end_of_data, close } => {
                announced = Some(channels);
                (end_of_data, close)
            }
        };
        if limit.is_some_and(|limit| taken >= limit) {
            return Err(std::io::Error::other("cut"));
        }
        if end {
            return Ok((announced, close));
        }
    }
}
