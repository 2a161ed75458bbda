//! A small HTTP server on the loopback address, with the faults that mirrors have.

pub mod files;

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// How it serves.
#[derive(Clone, Debug)]
pub enum Manner {
    /// All of a file, or the part of it that is asked for.
    Ranges,
    /// All of a file, whatever is asked for.
    Whole,
    /// As `Ranges`, but every connection breaks off after so many bytes of the file.
    CutAfter(usize),
    /// As `Whole`, but the first connection breaks off after so many bytes of the file.
    WholeCutOnce(usize),
    /// All of a file; 416 to whoever asks for a part.
    RefusesRanges,
    /// As `Ranges`, slowly.
    Slow,
    /// Sends on to another address.
    Redirects(String),
}

/// A request: the path, and from which byte on.
pub type Asked = (String, Option<usize>);

pub struct FileServer {
    address: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    served_bytes: Arc<Mutex<usize>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

struct Service {
    manner: Manner,
    files: BTreeMap<String, Vec<u8>>,
    asked: Arc<Mutex<Vec<Asked>>>,
    served_bytes: Arc<Mutex<usize>>,
}

impl FileServer {
    /// Serves `files` under their names.
    pub fn new(manner: Manner, files: &[(&str, &[u8])]) -> FileServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("127.0.0.1:{}", listener.local_addr().unwrap().port());
        let files = files.iter();
        let service = Service {
            manner,
            files: files
                .map(|(name, bytes)| (format!("/{name}"), bytes.to_vec()))
                .collect(),
            asked: Arc::default(),
            served_bytes: Arc::default(),
        };
        let (asked, served_bytes) = (service.asked.clone(), service.served_bytes.clone());
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Ordering::SeqCst) {
                    break;
                }
                // Who hangs up is in the right.
                let _ = service.answer(stream.unwrap());
            }
        });
        FileServer {
            address,
            asked,
            served_bytes,
            is_over,
            thread: Some(thread),
        }
    }

    /// The mirror's address.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// The requests so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// Bytes of files that were sent so far.
    pub fn served_bytes(&self) -> usize {
        *self.served_bytes.lock().unwrap()
    }
}

impl Drop for FileServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        // Wakes it.
        let _ = TcpStream::connect(&self.address);
        let thread = self.thread.take().unwrap();
        let ended = thread.join();
        assert!(ended.is_ok() || std::thread::panicking());
    }
}

impl Service {
    fn answer(&self, mut stream: TcpStream) -> io::Result<()> {
        let Some((path, from)) = request(&stream)? else {
            return Ok(());
        };
        self.asked.lock().unwrap().push((path.clone(), from));
        let head = |status: &str, more: &str| {
            format!("HTTP/1.1 {status}\r\nConnection: close\r\n{more}\r\n")
        };
        let length = |bytes: usize| format!("Content-Length: {bytes}\r\n");
        if let Manner::Redirects(to) = &self.manner {
            let to = format!(
                "Location: {}{path}\r\n{}",
                to.trim_end_matches('/'),
                length(0)
            );
            return stream.write_all(head("302 Found", &to).as_bytes());
        }
        let Some(file) = self.files.get(&path) else {
            return stream.write_all(head("404 Not Found", &length(0)).as_bytes());
        };
        let all = file.len();
        let from = match (&self.manner, from) {
            (Manner::RefusesRanges, Some(_)) => {
                let head = head("416 Range Not Satisfiable", &length(0));
                return stream.write_all(head.as_bytes());
            }
            (Manner::Whole | Manner::WholeCutOnce(_), _) | (_, None) => {
                stream.write_all(head("200 OK", &length(all)).as_bytes())?;
                0
            }
            (_, Some(from)) => {
                let range = format!("Content-Range: bytes {from}-{}/{all}\r\n", all - 1);
                let more = length(all - from) + &range;
                stream.write_all(head("206 Partial Content", &more).as_bytes())?;
                from
            }
        };
        self.send(&mut stream, &file[from..])
    }

    fn send(&self, stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
        let bytes = match self.manner {
            Manner::CutAfter(most) => &bytes[..bytes.len().min(most)],
            Manner::WholeCutOnce(most) if self.asked.lock().unwrap().len() == 1 => &bytes[..most],
            _ => bytes,
        };
        for piece in bytes.chunks(16 << 10) {
            // Before it is sent, so that whoever has all of it finds it counted.
            *self.served_bytes.lock().unwrap() += piece.len();
            stream.write_all(piece)?;
            if let Manner::Slow = self.manner {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        stream.flush()
    }
}

/// Reads a request; none where the connection was only opened.
fn request(stream: &TcpStream) -> io::Result<Option<Asked>> {
    let mut lines = BufReader::new(stream).lines();
    let Some(first) = lines.next().transpose()? else {
        return Ok(None);
    };
    let path = first.split(' ').nth(1).unwrap().to_owned();
    let mut from = None;
    for line in lines {
        let line = line?.to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(range) = line.strip_prefix("range: bytes=") {
            from = Some(range.trim_end_matches('-').parse().unwrap());
        }
    }
    Ok(Some((path, from)))
}
