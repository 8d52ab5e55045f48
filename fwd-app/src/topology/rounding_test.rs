//! Bursts and batches over a driver that rounds requests down, as the vector functions of ice and i40e do.

use super::{Settings, TopologyKind};
use crate::datapath::rx::Rx;
use crate::datapath::{Batch, Counters};
use dpdk_ffi::{Burst, Mempool, MempoolConfig, PortConfig, QueueId, Ring, RingPort, RingSync, SocketId};
use fib::Isa;
use rusty_fork::rusty_fork_test;
use std::sync::Arc;

rusty_fork_test! {
    #![rusty_fork(timeout_ms = 30_000)]

    #[test]
    fn a_driver_that_rounds_down_to_eight_is_emptied_with_any_sizes() {
        const PACKETS: u64 = 1003;
        let Some(eal) = dpdk_ffi::testing::eal() else { return };
        let pool = Mempool::new(eal, "packets", &MempoolConfig::default()).unwrap();
        for (number, (rx_burst, batch)) in
            [(1, 1), (4, 4), (7, 100), (8, 9), (32, 256), (128, 129)].into_iter().enumerate()
        {
            let ring = |way| {
                let name = format!("{way}{number}");
                Ring::new(eal, &name, 8, RingSync::SpSc, SocketId::ANY).unwrap()
            };
            let name = format!("rounding{number}");
            let port = RingPort::from_rings(eal, &name, &[ring("rx")], &[ring("tx")], SocketId::ANY).unwrap();
            port.configure(&PortConfig::default(), std::slice::from_ref(&pool)).unwrap();
            // 661 is not a multiple of 8, so a burst that ends at the end of the table is odd.
            let mut ready = Burst::with_capacity(eal, 661);
            pool.alloc_burst(&mut ready, 661).unwrap();
            let frames = [[0; 64]; 661];
            dpdk_ffi::testing::receive_rounding_down(&port, QueueId(0), ready, &frames, (PACKETS, 8)).unwrap();
            port.start().unwrap();
            let topology = TopologyKind::RunToCompletion;
            let settings = Settings {
                topology,
                rx_burst,
                batch,
                flush_us: 0,
                isa: Isa::Scalar,
                multiple: 1,
                fragments_max: None,
            };
            let limits = settings.of_devices().limits(1_000_000_000);
            let queue = port.take_rx_queue(QueueId(0)).unwrap();
            let mut rx = Rx::new(queue, 0, limits, Arc::default());
            let mut batch = Batch::alone(Burst::with_capacity(eal, limits.batch));
            let (mut counters, mut idle) = (Counters::default(), 0);
            // With `flush_us` 0 a waiting batch is due at the first poll that receives nothing.
            while idle < 3 {
                let came = rx.poll(&mut batch, &mut counters);
                idle = if came == 0 { idle + 1 } else { 0 };
                if rx.is_due(&batch, came) {
                    batch.packets.free_all();
                    batch.clear();
                }
            }
            assert_eq!(counters.rx_packets, PACKETS, "--rx-burst {rx_burst}, batch {}", limits.batch);
            assert!(batch.packets.is_empty());
        }
    }
}
