//! Events.

use super::{api, out};
use crate::error::{Answer, CAPTURED_EVENT, INVALID_HANDLE, INVALID_VALUE, NOT_READY};
use crate::state::{Object, driver};
use crate::stream::{Event, Operation, Recorded, lock};
use std::ffi::c_uint;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// `CU_EVENT_DISABLE_TIMING`.
const NO_TIMING: u32 = 2;

fn record(event: u64, stream: u64) -> Answer {
    let stream = driver().stream(stream)?;
    let event = driver().event(event)?;
    if let Some(capture) = lock(&stream.capture).as_ref() {
        *lock(&event.captured) = Some((Arc::clone(capture), stream.id));
        return Ok(());
    }
    let time = Arc::new(OnceLock::new());
    let ticket = super::memory::submit(&stream, Operation::Record(Arc::clone(&time)))?;
    *lock(&event.captured) = None;
    *lock(&event.recorded) = Some(Recorded { stream, ticket, time });
    Ok(())
}

fn time_of(event: u64) -> Answer<Instant> {
    let event = driver().event(event)?;
    if event.flags & NO_TIMING != 0 {
        return Err(INVALID_HANDLE);
    }
    let recorded = lock(&event.recorded).clone().ok_or(INVALID_HANDLE)?;
    event.query()?;
    recorded.time.get().copied().ok_or(NOT_READY)
}

api! {
    /// Makes an event.
    fn cuEventCreate(event: *mut u64, flags: c_uint) {
        driver().current()?;
        if event.is_null() || flags > 7 {
            return Err(INVALID_VALUE);
        }
        let made = driver().add(Object::Event(Arc::new(Event { flags, ..Event::default() })));
        // SAFETY: an out pointer of the caller.
        unsafe { out(event, made) }
    }

    /// Forgets it; what waits for it still does.
    fn cuEventDestroy_v2(event: u64) {
        driver().current()?;
        driver().event(event)?;
        driver().remove(event);
        Ok(())
    }

    /// From now on it stands for what the stream has been given.
    fn cuEventRecord(event: u64, stream: u64) {
        record(event, stream)
    }

    /// As `cuEventRecord`.
    fn cuEventRecordWithFlags(event: u64, stream: u64, _flags: c_uint) {
        record(event, stream)
    }

    /// Whether that is done.
    fn cuEventQuery(event: u64) {
        driver().current()?;
        let event = driver().event(event)?;
        if lock(&event.captured).is_some() {
            return Err(CAPTURED_EVENT);
        }
        event.query()
    }

    /// Waits for it.
    fn cuEventSynchronize(event: u64) {
        driver().current()?;
        let event = driver().event(event)?;
        if lock(&event.captured).is_some() {
            return Err(CAPTURED_EVENT);
        }
        let recorded = lock(&event.recorded).clone();
        recorded.map_or(Ok(()), |r| r.stream.wait(r.ticket, "cuEventSynchronize"))
    }

    /// Milliseconds between two events that are done.
    fn cuEventElapsedTime(milliseconds: *mut f32, start: u64, end: u64) {
        driver().current()?;
        let (start, end) = (time_of(start)?, time_of(end)?);
        let elapsed = if end >= start { (end - start).as_secs_f32() } else { -(start - end).as_secs_f32() };
        // SAFETY: an out pointer of the caller.
        unsafe { out(milliseconds, elapsed * 1e3) }
    }
}
