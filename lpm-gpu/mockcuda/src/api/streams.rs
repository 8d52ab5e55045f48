//! Streams and their events.

use super::{api, out, unsupported};
use crate::error::{CallResult, INVALID_HANDLE, INVALID_VALUE, NOT_READY};
use crate::state::{Object, driver};
use crate::stream::{MockEvent, MockStream, Operation, Recorded, lock};
use std::ffi::{c_int, c_uint};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

const NON_BLOCKING: u32 = 1;
const NO_TIMING: u32 = 2;
const STREAMS_AT_ONCE: usize = 16;

fn time_of(event: u64) -> CallResult<Instant> {
    let event = driver().event(event)?;
    let recorded = lock(&event.recorded).clone().filter(|_| event.timed).ok_or(INVALID_HANDLE)?;
    event.query()?;
    recorded.time.get().copied().ok_or(NOT_READY)
}

api! {
    /// Beyond the streams created so far it creates a new lot, and waits for running kernels to do so, as the driver does.
    fn cuStreamCreateWithPriority(stream: *mut u64, flags: c_uint, _priority: c_int) {
        let context = driver().current()?;
        if flags != NON_BLOCKING {
            return unsupported("a stream that waits for the default stream");
        }
        if stream.is_null() {
            return Err(INVALID_VALUE);
        }
        let there = lock(&context.streams).clone();
        if there.len() >= context.streams_most.load(Relaxed) {
            for stream in &there {
                stream.wait(stream.last(), "cuStreamCreateWithPriority")?;
            }
            context.streams_most.store(there.len() + STREAMS_AT_ONCE, Relaxed);
        }
        let made = driver().new_handle();
        let object = MockStream::new(made, Arc::clone(&context.fate));
        lock(&context.streams).push(Arc::clone(&object));
        driver().put(made, Object::Stream(object));
        // SAFETY: an out pointer of the caller.
        unsafe { out(stream, made) }
    }

    /// Operations already submitted still run.
    fn cuStreamDestroy_v2(stream: u64) {
        let context = driver().current()?;
        let found = driver().stream(stream)?;
        found.close();
        lock(&context.streams).retain(|s| s.id != stream || !s.is_done(s.last()));
        driver().remove(stream);
        Ok(())
    }

    fn cuStreamQuery(stream: u64) {
        driver().stream(stream)?.query()
    }

    fn cuEventCreate(event: *mut u64, flags: c_uint) {
        driver().current()?;
        if event.is_null() || flags & !NO_TIMING != 0 {
            return Err(INVALID_VALUE);
        }
        let made = MockEvent { timed: flags & NO_TIMING == 0, ..MockEvent::default() };
        // SAFETY: an out pointer of the caller.
        unsafe { out(event, driver().add(Object::MockEvent(Arc::new(made)))) }
    }

    /// Waits for the event still complete.
    fn cuEventDestroy_v2(event: u64) {
        driver().current()?;
        driver().event(event)?;
        driver().remove(event);
        Ok(())
    }

    fn cuEventRecord(event: u64, stream: u64) {
        let stream = driver().stream(stream)?;
        let event = driver().event(event)?;
        let time = Arc::new(OnceLock::new());
        let ticket = stream.submit(Operation::Record(Arc::clone(&time)))?;
        *lock(&event.recorded) = Some(Recorded { stream, ticket, time });
        Ok(())
    }

    fn cuEventQuery(event: u64) {
        driver().current()?;
        driver().event(event)?.query()
    }

    fn cuEventElapsedTime(milliseconds: *mut f32, start: u64, end: u64) {
        driver().current()?;
        let (start, end) = (time_of(start)?, time_of(end)?);
        let elapsed = if end >= start { (end - start).as_secs_f32() } else { -(start - end).as_secs_f32() };
        // SAFETY: an out pointer of the caller.
        unsafe { out(milliseconds, elapsed * 1e3) }
    }
}
