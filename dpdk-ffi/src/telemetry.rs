//! The program's commands on DPDK's telemetry socket. A handler's JSON becomes DPDK's tree, or a string if the tree cannot hold it.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::c_text::{c_string, copy_text};
use crate::eal::Eal;
use crate::error::DpdkError;
use crate::sys;

/// Handles one request: takes the text after the command's comma (empty without one) and returns the reply.
type Handler = Box<dyn Fn(&str) -> Value + Send>;

/// DPDK passes no user pointer to a callback, so handlers are found by the command's name.
static HANDLERS: Mutex<BTreeMap<String, Option<Handler>>> = Mutex::new(BTreeMap::new());

/// A registered command. After it is dropped, requests for the command get an error as their reply.
#[must_use = "dropping a registration unregisters the command"]
pub struct Registration {
    command: String,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let handler = handlers().get_mut(&self.command).and_then(Option::take);
        // Outside the lock: dropping a handler may drop the last handle on EAL and so end EAL.
        drop(handler);
    }
}

fn handlers() -> std::sync::MutexGuard<'static, BTreeMap<String, Option<Handler>>> {
    HANDLERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers `command`, e.g. `/fwd/stats`, with one line of help. `answer` runs on DPDK's telemetry thread; it must not (un)register.
///
/// # Errors
/// [`DpdkError::NamedCall`] if the name is taken, longer than 55 bytes or does not start with `/`, or the help exceeds 127 bytes.
pub fn register<F>(_eal: &Eal, command: &str, help: &str, answer: F) -> Result<Registration, DpdkError>
where
    F: Fn(&str) -> Value + Send + 'static,
{
    let (c_command, c_help) =
        (c_string("a telemetry command", command)?, c_string("a telemetry help text", help)?);
    let mut handlers = handlers();
    match handlers.get_mut(command) {
        // DPDK cannot remove a command, so the slot of an unregistered command is reused.
        Some(slot @ None) => *slot = Some(Box::new(answer)),
        Some(Some(_)) => return Err(DpdkError::named("rte_telemetry_register_cmd", command, libc::EEXIST)),
        None => {
            // SAFETY: both texts live through the call (DPDK copies them); the callback is a function, it never unwinds.
            let failed = unsafe {
                sys::rte_telemetry_register_cmd(c_command.as_ptr(), Some(on_request), c_help.as_ptr())
            };
            if failed != 0 {
                return Err(DpdkError::named("rte_telemetry_register_cmd", command, failed));
            }
            handlers.insert(command.into(), Some(Box::new(answer)));
        }
    }
    Ok(Registration { command: command.into() })
}

/// Called by DPDK on its telemetry thread. Returns 0, or -1 for "no reply".
unsafe extern "C" fn on_request(
    command: *const c_char,
    args: *const c_char,
    reply: *mut sys::rte_tel_data,
) -> c_int {
    // SAFETY: DPDK passes NUL-terminated strings that live through the call, or NULL for no arguments.
    let (command, args) = unsafe { (copy_text(command), copy_text(args)) };
    let Some(reply) = NonNull::new(reply) else { return -1 };
    let answered = catch_unwind(AssertUnwindSafe(|| {
        let handlers = handlers();
        let answer = handlers.get(&command).and_then(Option::as_ref).map(|handler| handler(&args));
        answer.unwrap_or_else(|| serde_json::json!({ "error": "this command was unregistered" }))
    }));
    let answer =
        answered.unwrap_or_else(|_| serde_json::json!({ "error": "the handler of this command panicked" }));
    let reply = Tree { raw: reply };
    // A failed `fill` may leave a half-built tree; `text` starts over, so the reply is complete.
    let sent = reply.fill(&answer).or_else(|_| reply.text(&answer.to_string()));
    if sent.is_ok() { 0 } else { -1 }
}

struct Tree {
    raw: NonNull<sys::rte_tel_data>,
}

impl Tree {
    fn fill(&self, value: &Value) -> Result<(), DpdkError> {
        match value {
            Value::Object(fields) => {
                // SAFETY: the reply is a writable tree for the whole request, as for every call below.
                check(unsafe { sys::rte_tel_data_start_dict(self.raw.as_ptr()) })?;
                fields.iter().try_for_each(|(name, value)| self.add_field(name, value))
            }
            Value::Array(items) => self.fill_array(items),
            Value::String(text) => self.text(text),
            other => self.text(&other.to_string()),
        }
    }

    fn text(&self, text: &str) -> Result<(), DpdkError> {
        let text = c_text(text)?;
        // SAFETY: DPDK copies the string and reports when it is too long.
        check(unsafe { sys::rte_tel_data_string(self.raw.as_ptr(), text.as_ptr()) })
    }

    fn add_field(&self, name: &str, value: &Value) -> Result<(), DpdkError> {
        let (tree, c_name) = (self.raw.as_ptr(), c_text(name)?);
        match value {
            Value::Object(_) | Value::Array(_) => {
                let child = Child::new()?;
                child.tree().fill(value)?;
                // SAFETY: both trees are DPDK's; the parent owns the child if the call succeeds.
                check(unsafe {
                    sys::rte_tel_data_add_dict_container(tree, c_name.as_ptr(), child.raw.as_ptr(), 0)
                })?;
                child.release();
                Ok(())
            }
            Value::Number(number) if number.is_u64() => {
                let number = number.as_u64().unwrap_or(0);
                // SAFETY: DPDK copies name and number.
                check(unsafe { sys::dffi_tel_dict_u64(tree, c_name.as_ptr(), number) })
            }
            other => {
                let text = c_text(&as_text(other))?;
                // SAFETY: DPDK copies both strings.
                check(unsafe { sys::rte_tel_data_add_dict_string(tree, c_name.as_ptr(), text.as_ptr()) })
            }
        }
    }

    /// An array of DPDK's tree holds one type: numbers if all items are, containers if all are, else strings.
    fn fill_array(&self, items: &[Value]) -> Result<(), DpdkError> {
        let tree = self.raw.as_ptr();
        let all = |is: fn(&Value) -> bool| !items.is_empty() && items.iter().all(is);
        if all(Value::is_u64) {
            // SAFETY: the reply is a writable tree, as in `fill`.
            check(unsafe { sys::dffi_tel_start_u64_array(tree) })?;
            return items.iter().filter_map(Value::as_u64).try_for_each(|number| {
                // SAFETY: an array of u64 was started.
                check(unsafe { sys::dffi_tel_array_u64(tree, number) })
            });
        }
        if all(|item| item.is_object() || item.is_array()) {
            // SAFETY: the reply is a writable tree, as in `fill`.
            check(unsafe { sys::rte_tel_data_start_array(tree, sys::RTE_TEL_CONTAINER) })?;
            return items.iter().try_for_each(|item| {
                let child = Child::new()?;
                child.tree().fill(item)?;
                // SAFETY: an array of containers was started; it owns the child if the call succeeds.
                check(unsafe { sys::rte_tel_data_add_array_container(tree, child.raw.as_ptr(), 0) })?;
                child.release();
                Ok(())
            });
        }
        // SAFETY: the reply is a writable tree, as in `fill`.
        check(unsafe { sys::rte_tel_data_start_array(tree, sys::RTE_TEL_STRING_VAL) })?;
        items.iter().try_for_each(|item| {
            let text = c_text(&as_text(item))?;
            // SAFETY: an array of strings was started; DPDK copies the string.
            check(unsafe { sys::rte_tel_data_add_array_string(tree, text.as_ptr()) })
        })
    }
}

struct Child {
    raw: NonNull<sys::rte_tel_data>,
}

impl Child {
    fn new() -> Result<Child, DpdkError> {
        // SAFETY: allocates; NULL is checked.
        let raw = unsafe { sys::rte_tel_data_alloc() };
        NonNull::new(raw).map(|raw| Child { raw }).ok_or_else(|| DpdkError::call("rte_tel_data_alloc", 12))
    }

    fn tree(&self) -> Tree {
        Tree { raw: self.raw }
    }

    /// Releases ownership to the parent, which frees it.
    fn release(self) {
        std::mem::forget(self);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: made by rte_tel_data_alloc and not given away.
        unsafe { sys::rte_tel_data_free(self.raw.as_ptr()) };
    }
}

fn check(answer: i32) -> Result<(), DpdkError> {
    if answer == 0 { Ok(()) } else { Err(DpdkError::call("rte_tel_data", answer)) }
}

fn as_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn c_text(text: &str) -> Result<CString, DpdkError> {
    c_string("a telemetry text", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_tree_has_no_kind_for_becomes_text() {
        let texts =
            [Value::Null, Value::from(true), Value::from(-3), Value::from(1.5), Value::from("as it is")];
        assert_eq!(texts.each_ref().map(as_text), ["null", "true", "-3", "1.5", "as it is"]);
        assert!(matches!(c_text("a\0b"), Err(DpdkError::NulByte { .. })));
    }

    #[test]
    fn a_failed_call_on_the_tree_is_an_error_with_its_errno() {
        assert_eq!(check(0), Ok(()));
        assert!(matches!(check(-7), Err(DpdkError::Call { errno: 7, .. })));
    }
}
