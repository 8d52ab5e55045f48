//! The driver's functions with Rust types. Tests link the library, and call the functions that programs find in it.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test")]
#![expect(unreachable_pub, reason = "a module of every test file")]

use mockcuda::api::{device, memory, module, streams};
use mockcuda::control;
use std::ffi::{CString, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The driver for one test; excludes other tests of the process.
pub struct MockSession {
    context: u64,
    stream: u64,
    _one: MutexGuard<'static, ()>,
}

pub type ResultCode = u32;

pub fn check(code: u32) -> Result<(), ResultCode> {
    if code == 0 { Ok(()) } else { Err(code) }
}

pub const HEAD: &str = ".version 6.3\n.target sm_75\n.address_size 64\n";

/// An entry `k(u64 a, u64 b, u32 n)` with registers of all kinds and `body`.
pub fn entry(body: &str) -> String {
    format!(
        "{HEAD}.visible .entry k(.param .u64 k_a, .param .u64 k_b, .param .u32 k_n)\n{{\n.reg .pred %p<16>;\n\
         .reg .b16 %rs<16>;\n.reg .b32 %r<64>;\n.reg .b64 %rd<64>;\n{body}\nret;\n}}\n"
    )
}

#[derive(Clone, Copy)]
pub enum LaunchArg {
    U32(u32),
    U64(u64),
}

impl MockSession {
    pub fn open() -> Self {
        static ONE: Mutex<()> = Mutex::new(());
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        control::mockcuda_reset();
        let mut context = 0;
        // SAFETY: out pointers to locals.
        unsafe {
            check(device::cuInit(0)).unwrap();
            check(device::cuDevicePrimaryCtxReset_v2(0)).unwrap();
            check(device::cuDevicePrimaryCtxRetain(&raw mut context, 0)).unwrap();
            check(device::cuCtxSetCurrent(context)).unwrap();
        }
        Self { context, stream: new_stream(), _one: one }
    }

    pub fn context(&self) -> u64 {
        self.context
    }

    pub fn alloc(&self, bytes: usize) -> Result<u64, ResultCode> {
        let mut address = 0;
        // SAFETY: an out pointer to a local.
        check(unsafe { memory::cuMemAlloc_v2(&raw mut address, bytes) }).map(|()| address)
    }

    pub fn free(&self, address: u64) -> Result<(), ResultCode> {
        // SAFETY: takes a number.
        check(unsafe { memory::cuMemFree_v2(address) })
    }

    pub fn pinned(&self, words: usize) -> *mut u32 {
        let mut pointer = std::ptr::null_mut();
        // SAFETY: an out pointer to a local.
        check(unsafe { memory::cuMemHostAlloc(&raw mut pointer, words * 4, 2) }).unwrap();
        pointer.cast()
    }

    pub fn upload<T: Copy>(&self, address: u64, data: &[T]) -> Result<(), ResultCode> {
        // SAFETY: the slice has the length passed.
        check(unsafe {
            memory::cuMemcpyHtoDAsync_v2(address, data.as_ptr().cast(), size_of_val(data), self.stream)
        })?;
        self.synchronize(self.stream)
    }

    pub fn download<T: Copy + Default>(&self, address: u64, count: usize) -> Result<Vec<T>, ResultCode> {
        let mut data = vec![T::default(); count];
        // SAFETY: the vector has the length passed; the call returns when the copy is done.
        check(unsafe {
            memory::cuMemcpyDtoHAsync_v2(
                data.as_mut_ptr().cast(),
                address,
                size_of_val(&data[..]),
                self.stream,
            )
        })
        .map(|()| data)
    }

    pub fn device<T: Copy>(&self, data: &[T]) -> u64 {
        let address = self.alloc(size_of_val(data).max(1)).unwrap();
        self.upload(address, data).unwrap();
        address
    }

    pub fn load(&self, ptx: &str) -> Result<u64, ResultCode> {
        let text = CString::new(ptx).unwrap();
        let mut handle = 0;
        // SAFETY: an out pointer to a local, and a string that ends in zero.
        check(unsafe {
            let (options, values) = (std::ptr::null_mut(), std::ptr::null_mut());
            module::cuModuleLoadDataEx(&raw mut handle, text.as_ptr().cast(), 0, options, values)
        })
        .map(|()| handle)
    }

    pub fn function(&self, module: u64, name: &str) -> Result<u64, ResultCode> {
        let name = CString::new(name).unwrap();
        let mut handle = 0;
        // SAFETY: an out pointer to a local, and a string that ends in zero.
        check(unsafe { module::cuModuleGetFunction(&raw mut handle, module, name.as_ptr()) }).map(|()| handle)
    }

    pub fn kernel(&self, ptx: &str) -> u64 {
        let module = self.load(ptx).unwrap();
        self.function(module, "k").unwrap()
    }

    pub fn launch(
        &self,
        function: u64,
        blocks: u32,
        threads: u32,
        args: &[LaunchArg],
    ) -> Result<(), ResultCode> {
        self.launch_on(self.stream, function, (blocks, 1), threads, args)
    }

    pub fn launch_on(
        &self,
        stream: u64,
        function: u64,
        grid: (u32, u32),
        threads: u32,
        args: &[LaunchArg],
    ) -> Result<(), ResultCode> {
        let values = args.iter().map(|arg| match arg {
            LaunchArg::U32(value) => u64::from(*value),
            LaunchArg::U64(value) => *value,
        });
        let mut values: Vec<u64> = values.collect();
        let mut pointers: Vec<*mut c_void> =
            values.iter_mut().map(|v| std::ptr::from_mut(v).cast()).collect();
        let (params, null) = (pointers.as_mut_ptr(), std::ptr::null_mut());
        // SAFETY: a pointer for each argument, to a value at least as large (little-endian).
        check(unsafe {
            module::cuLaunchKernel(function, grid.0, grid.1, 1, threads, 1, 1, 0, stream, params, null)
        })
    }

    pub fn stream(&self) -> u64 {
        new_stream()
    }

    pub fn finish(&self) -> Result<(), ResultCode> {
        self.synchronize(self.stream)
    }

    pub fn poll(&self) -> Result<(), ResultCode> {
        self.query(self.stream)
    }

    pub fn synchronize(&self, stream: u64) -> Result<(), ResultCode> {
        loop {
            match self.query(stream) {
                Err(600) => std::thread::yield_now(),
                other => return other,
            }
        }
    }

    pub fn query(&self, stream: u64) -> Result<(), ResultCode> {
        // SAFETY: takes a number.
        check(unsafe { streams::cuStreamQuery(stream) })
    }

    pub fn event(&self, flags: u32) -> u64 {
        let mut handle = 0;
        // SAFETY: an out pointer to a local.
        check(unsafe { streams::cuEventCreate(&raw mut handle, flags) }).unwrap();
        handle
    }

    pub fn record(&self, event: u64, stream: u64) {
        // SAFETY: takes numbers.
        check(unsafe { streams::cuEventRecord(event, stream) }).unwrap();
    }

    /// Runs kernel body `body` in one block of `threads`; `a` holds `input`. Returns the `outputs` elements of `b`.
    pub fn run<I: Copy, O: Copy + Default>(
        &self,
        body: &str,
        threads: u32,
        input: &[I],
        outputs: usize,
    ) -> Vec<O> {
        self.try_run(body, threads, input, outputs).unwrap()
    }

    pub fn try_run<I: Copy, O: Copy + Default>(
        &self,
        body: &str,
        threads: u32,
        input: &[I],
        outputs: usize,
    ) -> Result<Vec<O>, ResultCode> {
        let module = self.load(&entry(body))?;
        let kernel = self.function(module, "k")?;
        let (a, b) = (self.device(input), self.alloc(outputs * size_of::<O>())?);
        let count = u32::try_from(input.len()).unwrap();
        self.launch(kernel, 1, threads, &[LaunchArg::U64(a), LaunchArg::U64(b), LaunchArg::U32(count)])?;
        let out = self.download(b, outputs)?;
        self.free(a)?;
        self.free(b)?;
        Ok(out)
    }
}

fn new_stream() -> u64 {
    let mut handle = 0;
    // SAFETY: an out pointer to a local.
    check(unsafe { streams::cuStreamCreateWithPriority(&raw mut handle, 1, 0) }).unwrap();
    handle
}
