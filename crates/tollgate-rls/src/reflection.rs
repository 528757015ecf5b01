//! `grpc.reflection`: describes the services to generic clients.
//!
//! Both versions have the same messages under different names and get the same responses. A stream
//! continues until the client ends it or the server drains. Each request is answered when it has
//! arrived.
//!
//! The descriptors are generated from `proto/` (`make generate`).

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};

use bytes::{Buf, Bytes, BytesMut};
use http_body::{Body, Frame};

use crate::health::{EndSignal, ServingStatus};
use tollgate_grpc::NextFrame;
use tollgate_grpc::call::{PREFIX_BYTES, Refusal, announced, framed, ok_trailers};
use tollgate_grpc::wire::{Reader, WireError, Write as _};

/// A `FileDescriptorSet` of all files in `proto/` and their imports.
pub(crate) static DESCRIPTORS: &[u8] = include_bytes!("../proto/descriptors.bin");

/// `NOT_FOUND`, as in `ErrorResponse`.
const NOT_FOUND: u64 = 5;

static INDEX: LazyLock<Index> = LazyLock::new(|| Index::of(DESCRIPTORS).unwrap_or_default());

/// An index of the described files and symbols.
#[derive(Debug, Default)]
struct Index {
    files: Vec<File>,
    /// The file of each message, enum, service and method, by full name.
    symbols: HashMap<String, usize>,
    services: Vec<String>,
}

#[derive(Debug)]
struct File {
    name: &'static str,
    bytes: &'static [u8],
    imports: Vec<&'static str>,
}

impl Index {
    fn of(set: &'static [u8]) -> Result<Self, WireError> {
        let mut index = Self::default();
        let mut fields = Reader::new(set);
        while let Some((number, value)) = fields.next_field()? {
            if number == 1 {
                index.add(value.bytes()?)?;
            }
        }
        Ok(index)
    }

    fn add(&mut self, bytes: &'static [u8]) -> Result<(), WireError> {
        let at = self.files.len();
        let mut file = File { name: "", bytes, imports: Vec::new() };
        let mut package = "";
        let mut fields = Reader::new(bytes);
        while let Some((number, value)) = fields.next_field()? {
            match number {
                1 => file.name = value.text()?,
                // The package precedes all symbols of the file.
                2 => package = value.text()?,
                3 => file.imports.push(value.text()?),
                4 | 5 => drop(self.symbol(at, package, value.bytes()?, &[3, 4])?),
                6 => {
                    let service = self.symbol(at, package, value.bytes()?, &[2])?;
                    self.services.push(service);
                }
                _ => {}
            }
        }
        self.files.push(file);
        Ok(())
    }

    /// Indexes a symbol and the symbols nested in these fields.
    fn symbol(
        &mut self,
        file: usize,
        scope: &str,
        message: &[u8],
        inner: &[u32],
    ) -> Result<String, WireError> {
        let mut fields = Reader::new(message);
        let mut name = String::new();
        while let Some((number, value)) = fields.next_field()? {
            if number == 1 {
                name = if scope.is_empty() {
                    value.text()?.to_owned()
                } else {
                    format!("{scope}.{}", value.text()?)
                };
            } else if inner.contains(&number) {
                // Enums and methods contain no further symbols.
                let deeper: &[u32] = if number == 3 { inner } else { &[] };
                self.symbol(file, &name, value.bytes()?, deeper)?;
            }
        }
        self.symbols.insert(name.clone(), file);
        Ok(name)
    }

    fn file_named(&self, name: &str) -> Option<usize> {
        self.files.iter().position(|file| file.name == name)
    }

    /// Returns a file and all its imports, each once.
    fn with_imports(&self, file: usize) -> Vec<usize> {
        let mut found = vec![file];
        let mut at = 0;
        while let Some(file) = found.get(at).and_then(|file| self.files.get(*file)) {
            for import in file.imports.iter().filter_map(|name| self.file_named(name)) {
                if !found.contains(&import) {
                    found.push(import);
                }
            }
            at += 1;
        }
        found
    }
}

/// Answers one request.
fn answer(message: &[u8]) -> Result<Bytes, WireError> {
    let (mut host, mut question) = ("", None);
    let mut fields = Reader::new(message);
    while let Some((number, value)) = fields.next_field()? {
        match number {
            1 => host = value.text()?,
            3 | 4 | 6 | 7 => question = Some((number, value.text()?)),
            5 => question = Some((number, "")),
            _ => {}
        }
    }
    let index = &*INDEX;
    let file = match question {
        Some((3, name)) => index.file_named(name),
        Some((4, symbol)) => index.symbols.get(symbol.trim_start_matches('.')).copied(),
        _ => None,
    };
    Ok(framed(|out| {
        out.put_bytes(1, host.as_bytes());
        out.put_message(2, |out| out.extend_from_slice(message));
        match (question, file) {
            (Some((7, _)), _) => out.put_message(6, |out| {
                for service in &index.services {
                    out.put_message(1, |out| out.put_bytes(1, service.as_bytes()));
                }
            }),
            (_, Some(file)) => out.put_message(4, |out| {
                for file in index.with_imports(file) {
                    out.put_bytes(1, index.files[file].bytes);
                }
            }),
            (Some((6, name)), _) if index.symbols.contains_key(name) => {
                out.put_message(5, |out| out.put_bytes(1, name.as_bytes()));
            }
            _ => out.put_message(7, |out| {
                out.put_uint(1, NOT_FOUND);
                out.put_bytes(2, b"nothing of this name is served here");
            }),
        }
    }))
}

/// A stream of requests, answered one by one.
#[derive(Debug)]
pub(crate) struct ReflectionStream<B> {
    questions: Pin<Box<B>>,
    arrived: BytesMut,
    end: EndSignal,
    is_over: bool,
}

impl<B: Body> ReflectionStream<B> {
    pub(crate) fn new(serving: &Arc<ServingStatus>, questions: B) -> Self {
        let end = EndSignal::end_of(serving);
        Self { questions: Box::pin(questions), arrived: BytesMut::new(), end, is_over: false }
    }

    /// Returns the response to the next request that has arrived completely.
    fn next(&mut self) -> Result<Option<Bytes>, Refusal> {
        let Some(length) = announced(&self.arrived)? else { return Ok(None) };
        if self.arrived.len() < PREFIX_BYTES + length {
            return Ok(None);
        }
        self.arrived.advance(PREFIX_BYTES);
        Ok(Some(answer(&self.arrived.split_to(length))?))
    }
}

impl<B: Body> Body for ReflectionStream<B> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> NextFrame {
        let this = &mut *self;
        loop {
            if this.is_over {
                return Poll::Ready(None);
            }
            match this.next() {
                Ok(Some(answer)) => return Poll::Ready(Some(Ok(Frame::data(answer)))),
                Ok(None) => {}
                Err(refusal) => {
                    this.is_over = true;
                    return Poll::Ready(Some(Ok(Frame::trailers(refusal.trailers()))));
                }
            }
            let frame = match this.questions.as_mut().poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => frame,
                Poll::Pending if !this.end.has_come(cx) => return Poll::Pending,
                Poll::Pending | Poll::Ready(_) => {
                    this.is_over = true;
                    return Poll::Ready(Some(Ok(Frame::trailers(ok_trailers()))));
                }
            };
            // The buffer holds less than one request and one frame, which are bounded.
            if let Ok(mut data) = frame.into_data() {
                this.arrived.extend_from_slice(&data.copy_to_bytes(data.remaining()));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.is_over
    }
}
