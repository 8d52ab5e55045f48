//! A batch as a CUDA graph: keys in, lookup, answers out, by one driver call.

use super::device::{Device, on};
use super::driver::RawHandle;
use super::error::GpuError;
use super::kernel::{Arg, Kernel, Shape, with_parameters};
use super::memory::{DeviceBuffer, DeviceWords, Plain, within};
use super::pinned::{HostSide, Pinned};
use super::stream::Stream;
use cudarc::driver::sys;
use std::ffi::c_void;

/// A graph of copy in, kernel and copy out, which owns the batch's memory: one call a batch, and one a node with new parameters.
pub struct BatchGraph<K: Plain> {
    device: Device,
    keys: Pinned<K>,
    raw: Pinned<u32>,
    device_keys: DeviceBuffer<K>,
    device_raw: DeviceWords,
    made: Option<MadeGraph>,
}

struct MadeGraph {
    graph: RawHandle<sys::CUgraph>,
    exec: RawHandle<sys::CUgraphExec>,
    copy_in: RawHandle<sys::CUgraphNode>,
    lookup: RawHandle<sys::CUgraphNode>,
    copy_out: RawHandle<sys::CUgraphNode>,
    launch: Launch,
    count: u32,
}

#[derive(Clone)]
struct Launch {
    kernel: Kernel,
    shape: Shape,
    words: sys::CUdeviceptr,
    header: sys::CUdeviceptr,
}

impl Launch {
    fn is(&self, other: &Self) -> bool {
        self.kernel.is(&other.kernel)
            && self.shape == other.shape
            && self.words == other.words
            && self.header == other.header
    }
}

impl<K: Plain> BatchGraph<K> {
    /// For batches of up to `batch_max` keys.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`], [`GpuError::Call`].
    pub fn new(device: &Device, batch_max: usize) -> Result<Self, GpuError> {
        Ok(Self {
            device: device.clone(),
            keys: Pinned::new(device, batch_max, HostSide::Writes)?,
            raw: Pinned::new(device, batch_max, HostSide::Reads)?,
            device_keys: DeviceBuffer::new(device, batch_max)?,
            device_raw: DeviceBuffer::new(device, batch_max)?,
            made: None,
        })
    }

    /// The buffer for the next batch's keys. Write-only.
    ///
    /// # Errors
    /// [`GpuError::Busy`] until the previous batch is known to be done.
    #[inline]
    pub fn keys_mut(&mut self) -> Result<&mut [K], GpuError> {
        self.keys.slice_mut()
    }

    /// The raw answers of the last batch, followed by older ones.
    ///
    /// # Errors
    /// [`GpuError::Busy`] until the batch is known to be done.
    #[inline]
    pub fn raw(&self) -> Result<&[u32], GpuError> {
        self.raw.slice()
    }

    /// [`Self::raw`], to be resolved in place.
    ///
    /// # Errors
    /// Errors of [`Self::raw`].
    #[inline]
    pub fn raw_mut(&mut self) -> Result<&mut [u32], GpuError> {
        self.raw.slice_mut()
    }

    /// Looks up the first `count` keys in the table `words` with `header`, on `stream`.
    ///
    /// # Errors
    /// [`GpuError::Range`] for too many keys; [`GpuError::Busy`] if the previous batch ran on another stream and is not known to
    /// be done; [`GpuError::Kernel`], [`GpuError::Threads`], [`GpuError::Foreign`], [`GpuError::Call`].
    pub fn submit(
        &mut self,
        stream: &mut Stream,
        kernel: &Kernel,
        shape: Shape,
        (words, header): (&DeviceWords, &DeviceWords),
        count: u32,
    ) -> Result<(), GpuError> {
        within(&(0..count as usize), self.keys.len())?;
        for (device, what) in [
            (&self.device, "a graph"),
            (words.device(), "a table"),
            (header.device(), "a header"),
            (kernel.device(), "a kernel"),
        ] {
            stream.own(device, what)?;
        }
        kernel.accepts_threads(shape.threads)?;
        if count == 0 {
            return Ok(()); // a copy node cannot copy 0 bytes
        }
        let launch =
            Launch { kernel: kernel.clone(), shape, words: words.address(), header: header.address() };
        self.prepare(launch, count)?;
        let Some(made) = &self.made else { return Ok(()) };
        let exec = made.exec.0;
        let number = stream.next();
        self.keys.host_for(&(0..0), stream.progress(), number)?;
        self.raw.host_for(&(0..0), stream.progress(), number)?;
        // SAFETY: `prepare` built the graph from memory of `self` and a table and kernel that exist now; their owners free them
        // only when this launch is done.
        unsafe { on!(&self.device, cuGraphLaunch(exec, stream.raw())) }
    }

    fn prepare(&mut self, launch: Launch, count: u32) -> Result<(), GpuError> {
        let Some(mut made) = self.made.take() else {
            self.made = Some(self.make(launch, count)?);
            return Ok(());
        };
        let changed = self.change(&mut made, launch, count);
        if changed.is_ok() {
            self.made = Some(made);
        } else {
            made.destroy(&self.device); // partly changed: the next batch builds a new one
        }
        changed
    }

    fn change(&mut self, made: &mut MadeGraph, launch: Launch, count: u32) -> Result<(), GpuError> {
        let context = self.device.context();
        if made.count != count {
            let (copy_in, copy_out) = (self.copy_in(count), self.copy_out(count));
            // SAFETY: a node of this graph; only the length of its copy differs, and it is within both arrays.
            unsafe {
                on!(
                    &self.device,
                    cuGraphExecMemcpyNodeSetParams(made.exec.0, made.copy_in.0, &raw const copy_in, context)
                )
            }?;
            // SAFETY: as for the copy in.
            unsafe {
                on!(
                    &self.device,
                    cuGraphExecMemcpyNodeSetParams(
                        made.exec.0,
                        made.copy_out.0,
                        &raw const copy_out,
                        context
                    )
                )
            }?;
        }
        if made.count != count || !made.launch.is(&launch) {
            let (exec, node) = (made.exec.0, made.lookup.0);
            self.with_lookup(&launch, count, |device, parameters| {
                // SAFETY: a node of this graph; `with_lookup` gives the parameters of a launch, which the call copies.
                unsafe { on!(device, cuGraphExecKernelNodeSetParams_v2(exec, node, parameters)) }
            })?;
        }
        (made.launch, made.count) = (launch, count);
        Ok(())
    }

    fn make(&mut self, launch: Launch, count: u32) -> Result<MadeGraph, GpuError> {
        let mut graph = std::ptr::null_mut();
        // SAFETY: an out pointer for the handle; flags must be 0.
        unsafe { on!(&self.device, cuGraphCreate(&raw mut graph, 0)) }?;
        self.fill(graph, launch, count).inspect_err(|_| destroy_graph(&self.device, graph))
    }

    fn fill(&mut self, graph: sys::CUgraph, launch: Launch, count: u32) -> Result<MadeGraph, GpuError> {
        let context = self.device.context();
        let null = std::ptr::null_mut();
        let (mut copy_in, mut lookup, mut copy_out) = (null, null, null);
        let copy = self.copy_in(count);
        // SAFETY: an out pointer for the node, an empty graph, no dependencies, and a copy within both arrays of `self`.
        unsafe {
            on!(
                &self.device,
                cuGraphAddMemcpyNode(&raw mut copy_in, graph, std::ptr::null(), 0, &raw const copy, context)
            )
        }?;
        self.with_lookup(&launch, count, |device, parameters| {
            // SAFETY: as for the copy in; one dependency, a node of this graph; the call copies the parameters of a launch.
            unsafe {
                on!(
                    device,
                    cuGraphAddKernelNode_v2(&raw mut lookup, graph, &raw const copy_in, 1, parameters)
                )
            }
        })?;
        let copy = self.copy_out(count);
        // SAFETY: as for the copy in; one dependency, a node of this graph.
        unsafe {
            on!(
                &self.device,
                cuGraphAddMemcpyNode(
                    &raw mut copy_out,
                    graph,
                    &raw const lookup,
                    1,
                    &raw const copy,
                    context
                )
            )
        }?;
        let mut exec = std::ptr::null_mut();
        // SAFETY: an out pointer for the handle, and a complete graph.
        unsafe { on!(&self.device, cuGraphInstantiateWithFlags(&raw mut exec, graph, 0)) }?;
        Ok(MadeGraph {
            graph: RawHandle(graph),
            exec: RawHandle(exec),
            copy_in: RawHandle(copy_in),
            lookup: RawHandle(lookup),
            copy_out: RawHandle(copy_out),
            launch,
            count,
        })
    }

    fn with_lookup(
        &mut self,
        launch: &Launch,
        count: u32,
        use_it: impl FnOnce(&Device, *const sys::CUDA_KERNEL_NODE_PARAMS) -> Result<(), GpuError>,
    ) -> Result<(), GpuError> {
        let args = [
            Arg::address(&self.device, launch.words),
            Arg::address(&self.device, launch.header),
            Arg::buffer(&self.device_keys),
            Arg::buffer(&self.device_raw),
            Arg::u32(count),
        ];
        launch.kernel.accepts(&args)?;
        with_parameters(&args, |parameters: *mut *mut c_void| {
            let parameters = sys::CUDA_KERNEL_NODE_PARAMS {
                func: launch.kernel.function(),
                gridDimX: launch.shape.blocks,
                gridDimY: launch.shape.rows,
                gridDimZ: 1,
                blockDimX: launch.shape.threads,
                blockDimY: 1,
                blockDimZ: 1,
                sharedMemBytes: 0,
                kernelParams: parameters,
                extra: std::ptr::null_mut(),
                kern: std::ptr::null_mut(),
                ctx: std::ptr::null_mut(),
            };
            use_it(&self.device, &raw const parameters)
        })
    }

    fn copy_in(&mut self, count: u32) -> sys::CUDA_MEMCPY3D {
        let mut copy = row(count as usize * size_of::<K>());
        copy.srcMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_HOST;
        copy.srcHost = self.keys.host_address().cast();
        copy.dstMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_DEVICE;
        copy.dstDevice = self.device_keys.address();
        copy
    }

    fn copy_out(&mut self, count: u32) -> sys::CUDA_MEMCPY3D {
        let mut copy = row(count as usize * size_of::<u32>());
        copy.srcMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_DEVICE;
        copy.srcDevice = self.device_raw.address();
        copy.dstMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_HOST;
        copy.dstHost = self.raw.host_address().cast();
        copy
    }
}

/// A copy of one row of `bytes`, without source and target.
fn row(bytes: usize) -> sys::CUDA_MEMCPY3D {
    sys::CUDA_MEMCPY3D {
        srcXInBytes: 0,
        srcY: 0,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_HOST,
        srcHost: std::ptr::null(),
        srcDevice: 0,
        srcArray: std::ptr::null_mut(),
        reserved0: std::ptr::null_mut(),
        srcPitch: bytes,
        srcHeight: 1,
        dstXInBytes: 0,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_HOST,
        dstHost: std::ptr::null_mut(),
        dstDevice: 0,
        dstArray: std::ptr::null_mut(),
        reserved1: std::ptr::null_mut(),
        dstPitch: bytes,
        dstHeight: 1,
        WidthInBytes: bytes,
        Height: 1,
        Depth: 1,
    }
}

impl MadeGraph {
    /// Destroys the graph; the driver keeps what a running launch needs.
    fn destroy(&self, device: &Device) {
        if !device.is_lost() {
            // SAFETY: instantiated once, destroyed once.
            let _swallowed = unsafe { on!(device, cuGraphExecDestroy(self.exec.0)) };
            destroy_graph(device, self.graph.0);
        }
    }
}

fn destroy_graph(device: &Device, graph: sys::CUgraph) {
    // SAFETY: created once, destroyed once, with its nodes.
    let _swallowed = unsafe { on!(device, cuGraphDestroy(graph)) };
}

impl<K: Plain> Drop for BatchGraph<K> {
    fn drop(&mut self) {
        if let Some(made) = self.made.take() {
            made.destroy(&self.device);
        }
    }
}

impl<K: Plain> std::fmt::Debug for BatchGraph<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BatchGraph({:?}, made: {})", self.keys, self.made.is_some())
    }
}
