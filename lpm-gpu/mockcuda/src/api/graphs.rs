//! Graphs of kernels and copies. Nodes run in the order in which they were added, which is a valid order.

use super::module::Launched;
use super::{api, not_served, out};
use crate::error::{Answer, INVALID_VALUE};
use crate::state::{Nodes, Object, driver};
use crate::stream::{Copy, End, Operation, lock};
use std::ffi::{c_uint, c_void};
use std::sync::{Arc, Mutex};

/// `CUDA_KERNEL_NODE_PARAMS_v2`.
#[derive(Debug)]
#[repr(C)]
pub struct KernelNode {
    function: u64,
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
    kernel: u64,
    context: u64,
}

/// One end of a copy in `CUDA_MEMCPY3D`.
#[derive(Debug)]
#[repr(C)]
pub struct CopyEnd {
    x_bytes: usize,
    y: usize,
    z: usize,
    lod: usize,
    kind: c_uint,
    host: *const c_void,
    device: u64,
    array: u64,
    reserved: u64,
    pitch: usize,
    height: usize,
}

/// `CUDA_MEMCPY3D`.
#[derive(Debug)]
#[repr(C)]
pub struct CopyNode {
    from: CopyEnd,
    to: CopyEnd,
    width_bytes: usize,
    height: usize,
    depth: usize,
}

/// Memory types: host is 1, device is 2.
fn end(end: &CopyEnd, bytes: usize) -> Answer<End> {
    match end {
        CopyEnd { x_bytes: 0, y: 0, z: 0, kind: 1, host, .. } => Ok(End::Host(host.expose_provenance())),
        CopyEnd { x_bytes: 0, y: 0, z: 0, kind: 2, device, .. } => {
            driver().memory()?.range(*device, bytes as u64).ok_or(INVALID_VALUE)?;
            Ok(End::Device(*device))
        }
        _ => not_served("a copy in a graph of anything but one row between host and device"),
    }
}

/// # Safety
/// `params` is null or points to a `CUDA_MEMCPY3D`.
unsafe fn copy_of(params: *const CopyNode) -> Answer<Operation> {
    // SAFETY: the caller's promise.
    let node = unsafe { params.as_ref() }.ok_or(INVALID_VALUE)?;
    if (node.height, node.depth) != (1, 1) {
        return not_served("a copy in a graph of more or less than one row");
    }
    let bytes = node.width_bytes;
    Ok(Operation::Copy(Copy { to: end(&node.to, bytes)?, from: end(&node.from, bytes)?, bytes }))
}

/// # Safety
/// `params` is null or points to a `CUDA_KERNEL_NODE_PARAMS_v2` whose own pointers are those of a launch.
unsafe fn kernel_of(params: *const KernelNode) -> Answer<Operation> {
    // SAFETY: the caller's promise.
    let node = unsafe { params.as_ref() }.ok_or(INVALID_VALUE)?;
    let asked = Launched {
        grid: node.grid,
        block: node.block,
        shared: node.shared,
        params: node.params,
        extra: node.extra,
    };
    // SAFETY: the caller's promise.
    unsafe { asked.check(node.function) }
}

/// Adds a node. Its dependencies must exist already, so the order of adding is a valid order of execution.
///
/// # Safety
/// `dependencies` is null or points to `count` handles; `node` is an out pointer.
unsafe fn add(
    node: *mut u64,
    graph: u64,
    dependencies: *const u64,
    count: usize,
    operation: Operation,
) -> Answer {
    let graph = driver().graph(graph)?;
    if node.is_null() || (dependencies.is_null() && count > 0) {
        return Err(INVALID_VALUE);
    }
    let mut nodes = lock(&graph);
    for i in 0..count {
        // SAFETY: the caller gives `count` handles.
        let wanted = unsafe { dependencies.add(i).read() };
        if !nodes.iter().any(|n| n.0 == wanted) {
            return Err(INVALID_VALUE);
        }
    }
    let handle = driver().new_handle();
    nodes.push((handle, operation));
    // SAFETY: not null, an out pointer of the caller.
    unsafe { out(node, handle) }
}

/// Replaces the operation of a node of an executable graph by another of the same kind.
fn change(exec: u64, node: u64, operation: Operation) -> Answer {
    let exec = driver().exec(exec)?;
    let mut nodes = lock(&exec);
    let found = nodes.iter_mut().find(|n| n.0 == node).ok_or(INVALID_VALUE)?;
    if std::mem::discriminant(&found.1) != std::mem::discriminant(&operation) {
        return Err(INVALID_VALUE);
    }
    found.1 = operation;
    Ok(())
}

api! {
    /// An empty graph.
    fn cuGraphCreate(graph: *mut u64, flags: c_uint) {
        driver().current()?;
        if flags != 0 || graph.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: an out pointer of the caller.
        unsafe { out(graph, driver().add(Object::Graph(Arc::new(Nodes::default())))) }
    }

    /// Destroys a graph. Executable graphs made from it stay valid.
    fn cuGraphDestroy(graph: u64) {
        driver().graph(graph)?;
        driver().remove(graph);
        Ok(())
    }

    /// Adds a kernel node.
    fn cuGraphAddKernelNode_v2(node: *mut u64, graph: u64, dependencies: *const u64, count: usize, params: *const KernelNode) {
        // SAFETY: the caller's structures.
        unsafe { add(node, graph, dependencies, count, kernel_of(params)?) }
    }

    /// Adds a node that copies one row.
    fn cuGraphAddMemcpyNode(
        node: *mut u64,
        graph: u64,
        dependencies: *const u64,
        count: usize,
        params: *const CopyNode,
        context: u64,
    ) {
        driver().context(context)?;
        // SAFETY: the caller's structures.
        unsafe { add(node, graph, dependencies, count, copy_of(params)?) }
    }

    /// Makes an executable graph.
    fn cuGraphInstantiateWithFlags(exec: *mut u64, graph: u64, flags: u64) {
        driver().current()?;
        if flags != 0 {
            return not_served("flags of a graph");
        }
        let nodes = lock(&*driver().graph(graph)?).clone();
        // SAFETY: an out pointer of the caller.
        unsafe { out(exec, driver().add(Object::Exec(Arc::new(Mutex::new(nodes))))) }
    }

    /// Destroys an executable graph; launches already made still run.
    fn cuGraphExecDestroy(exec: u64) {
        driver().exec(exec)?;
        driver().remove(exec);
        Ok(())
    }

    /// Changes a kernel node for later launches.
    fn cuGraphExecKernelNodeSetParams_v2(exec: u64, node: u64, params: *const KernelNode) {
        // SAFETY: the caller's structure.
        change(exec, node, unsafe { kernel_of(params) }?)
    }

    /// Changes a copy node for later launches.
    fn cuGraphExecMemcpyNodeSetParams(exec: u64, node: u64, params: *const CopyNode, context: u64) {
        driver().context(context)?;
        // SAFETY: the caller's structure.
        change(exec, node, unsafe { copy_of(params) }?)
    }

    /// Launches all nodes, in order, as one operation of the stream.
    fn cuGraphLaunch(exec: u64, stream: u64) {
        let stream = driver().stream(stream)?;
        let exec = driver().exec(exec)?;
        let nodes = lock(&exec).iter().map(|n| n.1.clone()).collect();
        stream.submit(Operation::Graph(Arc::new(nodes))).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{device, memory, module, streams};
    use std::ffi::CString;
    use std::ptr::{null, null_mut};

    const NOWHERE: CopyEnd = CopyEnd {
        x_bytes: 0,
        y: 0,
        z: 0,
        lod: 0,
        kind: 1,
        host: null(),
        device: 0,
        array: 0,
        reserved: 0,
        pitch: 0,
        height: 1,
    };

    fn copy(from: CopyEnd, to: CopyEnd) -> CopyNode {
        CopyNode { from, to, width_bytes: 4, height: 1, depth: 1 }
    }

    /// Initialises the driver: context, stream, and a kernel that adds a parameter to a word.
    unsafe fn open() -> (u64, u64, u64) {
        let ptx = ".version 6.3\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 k_a, .param .u32 k_n)\n{\n\
            .reg .b64 %rd<2>;\n.reg .b32 %r<3>;\nld.param.u64 %rd1, [k_a]; ld.param.u32 %r1, [k_n]; ld.global.u32 %r2, [%rd1];\n\
            add.s32 %r2, %r2, %r1; st.global.u32 [%rd1], %r2; ret;\n}\n";
        let text = CString::new(ptx).unwrap();
        let (mut context, mut stream, mut module, mut function) = (0, 0, 0, 0);
        // SAFETY: out pointers to locals, and C strings.
        unsafe {
            assert_eq!(device::cuInit(0), 0);
            assert_eq!(device::cuDevicePrimaryCtxRetain(&raw mut context, 0), 0);
            assert_eq!(device::cuCtxSetCurrent(context), 0);
            assert_eq!(streams::cuStreamCreateWithPriority(&raw mut stream, 1, 0), 0);
            let none = (null_mut(), null_mut());
            assert_eq!(
                module::cuModuleLoadDataEx(&raw mut module, text.as_ptr().cast(), 0, none.0, none.1),
                0
            );
            assert_eq!(module::cuModuleGetFunction(&raw mut function, module, c"k".as_ptr()), 0);
        }
        (context, stream, function)
    }

    /// Copies a word in, adds to it on the device and copies it out; then again with other host words and another
    /// number.
    #[test]
    fn nodes_run_in_order_and_can_be_changed() {
        let (mut word, mut pinned) = (0_u64, null_mut());
        let (mut graph, mut exec, mut nodes) = (0, 0, [0; 3]);
        // SAFETY: out pointers to locals, and structures whose pointers live as long as the test; the pinned words are read and
        // written while the stream is idle.
        unsafe {
            let (context, stream, function) = open();
            assert_eq!(memory::cuMemAlloc_v2(&raw mut word, 4), 0);
            assert_eq!(memory::cuMemHostAlloc(&raw mut pinned, 16, 0), 0);
            let words = pinned.cast::<u32>();
            let host = |i: usize| CopyEnd { host: words.add(i).cast(), ..NOWHERE };
            let on_device = || CopyEnd { kind: 2, device: word, ..NOWHERE };
            let (mut number, mut address) = (5_u32, word);
            let number_at = &raw mut number;
            let mut params = [(&raw mut address).cast::<c_void>(), number_at.cast()];
            let params = params.as_mut_ptr();
            let (one, none) = ([1; 3], null_mut());
            let kernel = KernelNode {
                function,
                grid: one,
                block: one,
                shared: 0,
                params,
                extra: none,
                kernel: 0,
                context: 0,
            };
            assert_eq!(cuGraphCreate(&raw mut graph, 0), 0);
            let [first, second, third] = nodes.each_mut().map(std::ptr::from_mut);
            let to_device = copy(host(0), on_device());
            assert_eq!(cuGraphAddMemcpyNode(first, graph, null(), 0, &raw const to_device, context), 0);
            assert_eq!(cuGraphAddKernelNode_v2(second, graph, first, 1, &raw const kernel), 0);
            let to_host = copy(on_device(), host(1));
            assert_eq!(cuGraphAddMemcpyNode(third, graph, second, 1, &raw const to_host, context), 0);
            let (mut lost, missing) = (0, 77);
            assert_eq!(
                cuGraphAddKernelNode_v2(&raw mut lost, graph, &raw const missing, 1, &raw const kernel),
                1
            );
            let wide = CopyNode { height: 2, ..copy(host(0), on_device()) };
            assert_eq!(cuGraphAddMemcpyNode(&raw mut lost, graph, null(), 0, &raw const wide, context), 1);
            assert_eq!(cuGraphInstantiateWithFlags(&raw mut exec, graph, 0), 0);
            assert_eq!(cuGraphDestroy(graph), 0);
            let run = || {
                assert_eq!(cuGraphLaunch(exec, stream), 0);
                assert_eq!(device::cuCtxSynchronize(), 0);
                [words.add(1).read(), words.add(3).read()]
            };
            words.copy_from([10, 0, 20, 0].as_ptr(), 4);
            assert_eq!(run(), [15, 0]);
            let to_device = copy(host(2), on_device());
            assert_eq!(cuGraphExecMemcpyNodeSetParams(exec, *first, &raw const to_device, context), 0);
            number_at.write(50);
            assert_eq!(cuGraphExecKernelNodeSetParams_v2(exec, *second, &raw const kernel), 0);
            assert_eq!(
                cuGraphExecKernelNodeSetParams_v2(exec, *first, &raw const kernel),
                1,
                "a copy node takes only copies"
            );
            let to_host = copy(on_device(), host(3));
            assert_eq!(cuGraphExecMemcpyNodeSetParams(exec, *third, &raw const to_host, context), 0);
            assert_eq!(run(), [15, 70]);
            assert_eq!(cuGraphExecDestroy(exec), 0);
            assert_eq!(cuGraphLaunch(exec, stream), 400);
        }
    }
}
