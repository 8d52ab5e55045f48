//! Streams, their order, and capture into graphs.

use super::{api, memory::submit, out, out_if};
use crate::error::{
    CAPTURE_INVALIDATED, CAPTURE_UNJOINED, CAPTURE_UNMATCHED, CAPTURE_UNSUPPORTED, INVALID_VALUE,
};
use crate::state::{Context, Graph, Object, driver};
use crate::stream::{Capture, Operation, Stream, lock};
use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

fn create(context: &Context, flags: u32, priority: i32) -> u64 {
    let handle = driver().new_handle();
    let stream = Stream::new(handle, context.id, Arc::clone(&context.fate), flags, priority.clamp(-5, 0));
    lock(&context.streams).push(Arc::clone(&stream));
    driver().put(handle, Object::Stream(stream));
    handle
}

/// Marks a capture as failed if the stream is in one: what forbidden calls do.
pub(super) fn forbid_in_capture(stream: &Stream) -> crate::error::Answer {
    match lock(&stream.capture).as_ref() {
        None => Ok(()),
        Some(capture) => {
            lock(capture).invalid = true;
            Err(CAPTURE_UNSUPPORTED)
        }
    }
}

api! {
    /// Makes a stream; its thread starts with its first operation.
    fn cuStreamCreate(stream: *mut u64, flags: c_uint) {
        let context = driver().current()?;
        if stream.is_null() || flags > 1 {
            return Err(INVALID_VALUE);
        }
        // SAFETY: an out pointer of the caller.
        unsafe { out(stream, create(&context, flags, 0)) }
    }

    /// As `cuStreamCreate`; the priority is kept and means nothing.
    fn cuStreamCreateWithPriority(stream: *mut u64, flags: c_uint, priority: c_int) {
        let context = driver().current()?;
        if stream.is_null() || flags > 1 {
            return Err(INVALID_VALUE);
        }
        // SAFETY: an out pointer of the caller.
        unsafe { out(stream, create(&context, flags, priority)) }
    }

    /// Forgets a stream; it does what it has been given.
    fn cuStreamDestroy_v2(stream: u64) {
        let context = driver().current()?;
        let found = driver().stream_made(stream)?;
        found.close();
        lock(&context.streams).retain(|s| s.id != stream || !s.is_done(s.last()));
        driver().remove(stream);
        Ok(())
    }

    /// Whether all is done.
    fn cuStreamQuery(stream: u64) {
        let stream = driver().stream(stream)?;
        forbid_in_capture(&stream)?;
        stream.query()
    }

    /// Waits until all is done.
    fn cuStreamSynchronize(stream: u64) {
        let stream = driver().stream(stream)?;
        forbid_in_capture(&stream)?;
        stream.wait(stream.last(), "cuStreamSynchronize")
    }

    /// The stream's flags.
    fn cuStreamGetFlags(stream: u64, flags: *mut c_uint) {
        let stream = driver().stream(stream)?;
        // SAFETY: an out pointer of the caller.
        unsafe { out(flags, stream.flags) }
    }

    /// The stream's priority.
    fn cuStreamGetPriority(stream: u64, priority: *mut c_int) {
        let stream = driver().stream(stream)?;
        // SAFETY: an out pointer of the caller.
        unsafe { out(priority, stream.priority) }
    }

    /// The stream's context.
    fn cuStreamGetCtx(stream: u64, context: *mut u64) {
        let stream = driver().stream(stream)?;
        // SAFETY: an out pointer of the caller.
        unsafe { out(context, stream.context) }
    }

    /// There is no cache to set a window in.
    fn cuStreamSetAttribute(stream: u64, attribute: c_uint, value: *const c_void) {
        driver().stream(stream)?;
        if value.is_null() || attribute == 0 { Err(INVALID_VALUE) } else { Ok(()) }
    }

    /// Managed memory is not modelled: nothing to attach.
    fn cuStreamAttachMemAsync(stream: u64, _address: u64, _bytes: usize, _flags: c_uint) {
        driver().stream(stream).map(|_| ())
    }

    /// What comes later waits for the event as it was last recorded.
    fn cuStreamWaitEvent(stream: u64, event: u64, _flags: c_uint) {
        let stream = driver().stream(stream)?;
        let event = driver().event(event)?;
        if let Some((capture, from)) = lock(&event.captured).clone() {
            // The stream joins the capture, or is already in it and takes the other's work in.
            let mut own = lock(&stream.capture);
            if own.as_ref().is_some_and(|c| !Arc::ptr_eq(c, &capture)) {
                return Err(crate::error::CAPTURED_EVENT);
            }
            if stream.is_origin.load(Relaxed) {
                lock(&capture).unjoined.retain(|s| *s != from);
            }
            *own = Some(capture);
            return Ok(());
        }
        let recorded = lock(&event.recorded).clone();
        match recorded {
            Some(r) if !r.stream.is_done(r.ticket) => {
                forbid_in_capture(&stream)?;
                submit(&stream, Operation::Wait(r.stream, r.ticket)).map(|_| ())
            }
            _ => Ok(()),
        }
    }

    /// A function of the host when the stream gets there.
    fn cuLaunchHostFunc(stream: u64, function: Option<unsafe extern "C" fn(*mut c_void)>, data: *mut c_void) {
        let stream = driver().stream(stream)?;
        let function = function.ok_or(INVALID_VALUE)?;
        submit(&stream, Operation::Host(function, data.expose_provenance())).map(|_| ())
    }

    /// Waits for a word: flags 0 at least (cyclic), 1 equal, 2 and, 3 nor.
    fn cuStreamWaitValue32_v2(stream: u64, address: u64, value: c_uint, flags: c_uint) {
        let stream = driver().stream(stream)?;
        submit(&stream, Operation::WaitValue(address, value, flags)).map(|_| ())
    }

    /// Writes a word.
    fn cuStreamWriteValue32_v2(stream: u64, address: u64, value: c_uint, _flags: c_uint) {
        let stream = driver().stream(stream)?;
        submit(&stream, Operation::WriteValue(address, value)).map(|_| ())
    }

    /// From now on operations go into a graph.
    fn cuStreamBeginCapture_v2(stream: u64, _mode: c_uint) {
        let handle = stream;
        let stream = driver().stream(stream)?;
        if handle == 0 {
            return Err(CAPTURE_UNSUPPORTED);
        }
        let mut capture = lock(&stream.capture);
        if capture.is_some() {
            return Err(crate::error::CAPTURE_UNSUPPORTED);
        }
        *capture = Some(Arc::new(Mutex::new(Capture::default())));
        stream.is_origin.store(true, Relaxed);
        Ok(())
    }

    /// The graph, unless the capture failed.
    fn cuStreamEndCapture(stream: u64, graph: *mut u64) {
        let stream = driver().stream(stream)?;
        if !stream.is_origin.swap(false, Relaxed) {
            return Err(CAPTURE_UNMATCHED);
        }
        let capture = lock(&stream.capture).take().ok_or(CAPTURE_UNMATCHED)?;
        let context = driver().current()?;
        for other in lock(&context.streams).iter() {
            let mut theirs = lock(&other.capture);
            if theirs.as_ref().is_some_and(|c| Arc::ptr_eq(c, &capture)) {
                *theirs = None;
            }
        }
        let mut capture = lock(&capture);
        // SAFETY: an out pointer of the caller.
        unsafe { out(graph, 0) }?;
        if capture.invalid {
            return Err(CAPTURE_INVALIDATED);
        }
        if !capture.unjoined.is_empty() {
            return Err(CAPTURE_UNJOINED);
        }
        let nodes = std::mem::take(&mut capture.nodes);
        let nodes = nodes.into_iter().map(|node| (driver().new_handle(), node)).collect();
        let made = driver().add(Object::Graph(Arc::new(Graph { nodes: Mutex::new(nodes) })));
        // SAFETY: an out pointer of the caller.
        unsafe { out(graph, made) }
    }

    /// 0 none, 1 active, 2 failed.
    fn cuStreamIsCapturing(stream: u64, status: *mut c_uint) {
        let stream = driver().stream(stream)?;
        let now = lock(&stream.capture).as_ref().map_or(0, |capture| if lock(capture).invalid { 2 } else { 1 });
        // SAFETY: an out pointer of the caller.
        unsafe { out(status, now) }
    }

    /// Captures are not restricted by thread.
    fn cuThreadExchangeStreamCaptureMode(mode: *mut c_uint) {
        // SAFETY: null or a pointer of the caller.
        unsafe { out_if(mode, 0) };
        Ok(())
    }
}
