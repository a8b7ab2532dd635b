//! Every map and global of the programs: key, value, capacity, who writes, who reads.

use core::cell::{Cell, UnsafeCell};

use crate::{atomic, emit};
use aya_ebpf::{
    btf_maps::{Array, ArrayOfMaps, LruHashMap, PerCpuArray, PerCpuHashMap, ProgramArray, RingBuf},
    macros::btf_map,
};
use probe_packet::{Prefilter, SNAP};
use probe_wire::{
    DEVICE_BITS, DumpBody, DumpKind, DumpRow, EventHeader, EventKind, LossRow, MAX_CPUS, MOST_SENDERS, MOST_SENT,
    NearSenders, SOFTIRQ_VECTORS, STACK_BYTES, STACK_BYTES_MOST, SelfTest, Sender, SentCount, SentKey, Settings,
    Sighting, Uncounted, WAITING, WAITING_DEEP,
};

/// A CPU's ring; the loader makes each with the size it wants.
pub(crate) type Ring = RingBuf<u64, 4096>;

/// CPU number → ring. The programs of that CPU write, the collector reads.
#[btf_map]
pub(crate) static RINGS: ArrayOfMaps<Ring, MAX_CPUS> = ArrayOfMaps::new();

/// Event kind → what was emitted and lost on this CPU. `emit` writes, the collector reads.
#[btf_map]
pub(crate) static LOSS: PerCpuArray<LossRow, { EventKind::SLOTS }> = PerCpuArray::new();

/// 0 → what the programs of one CPU remember. Only the programs use it.
#[btf_map]
pub(crate) static CPU: PerCpuArray<CpuState, 1> = PerCpuArray::new();

/// tgid / 64 → a bit per process that is watched, up to `PID_MAX_LIMIT`. 512 KiB. The socket and
/// task programs write, and for the collector the programs `watch_process` and `forget_process`.
pub(crate) static WATCHED_TGIDS: Words<65_536> = Words::zero();

/// Address of an outgoing packet that matched → which packet it is, and where, a [`Whereabouts`]. The
/// egress program writes, the transmit program writes for taps and removes for other devices, the
/// programs of drops and of taps remove, who finds another packet there removes, the LRU forgets.
#[btf_map]
pub(crate) static WATCHED_SKBS: LruHashMap<u64, u64, 16_384> = LruHashMap::new();

/// Address of a socket that carried a match → its cookie. The cookie unmasks a reused address.
#[btf_map]
pub(crate) static WATCHED_SOCKS: LruHashMap<u64, u64, 8192> = LruHashMap::new();

/// Thread, as `bpf_get_current_pid_tgid` tells it → address of the inode in whose mapping it
/// faulted last. Only the storage programs use it.
#[btf_map]
pub(crate) static FAULTS: LruHashMap<u64, u64, 8192> = LruHashMap::new();

/// Thread, likewise → when it began to reclaim memory. Only the storage programs use it.
#[btf_map]
pub(crate) static RECLAIMS: LruHashMap<u64, u64, 8192> = LruHashMap::new();

/// Address of a `bio` of a watched thread, or that a throttle held back → what is known of it. The
/// block programs write and remove, the LRU forgets.
#[btf_map]
pub(crate) static BIOS: LruHashMap<u64, Bio, 8192> = LruHashMap::new();

/// Thread, likewise → what is known of the exits of its guest. Only the KVM programs use it.
#[btf_map]
pub(crate) static GUEST_EXITS: LruHashMap<u64, GuestExits, 4096> = LruHashMap::new();

/// Address of a socket without checks → its cookie, once its peer has been told.
#[btf_map]
pub(crate) static TOLD_SOCKS: LruHashMap<u64, u64, 8192> = LruHashMap::new();

/// Port / 64 → a bit per local port of a watched socket, or of one on which a watched process asks
/// others. Bits stay: a port that is used again costs records of drops, no wrong ones. 8 KiB.
#[btf_map]
pub(crate) static WATCHED_PORTS: Array<u64, 1024> = Array::new();

/// [`ScratchSlot`] → memory that is too large for the stack. Only the programs use it.
#[btf_map]
pub(crate) static SCRATCH: PerCpuArray<Scratch, 3> = PerCpuArray::new();

/// CPU number times [`CACHE_LINE`] → threads that are watched and wait for that CPU, as far as is
/// known: a number that stays too high costs records, no wrong ones. 64 KiB: a CPU reads its own at
/// every switch, and those of others change all the time. The task programs write.
pub(crate) static AWAITED: Words<{ MAX_CPUS * CACHE_LINE as usize }> = Words::zero();

/// Words of a cache line.
pub(crate) const CACHE_LINE: u32 = 8;

/// Number of a watched thread that can run → CPU for which it waits. The task programs write.
#[btf_map]
pub(crate) static WAITERS: LruHashMap<u64, u64, 16_384> = LruHashMap::new();

/// 0 → the program that goes on for `sched_switch` when a watched thread begins to wait
/// uninterruptibly. The loader writes.
#[btf_map]
pub(crate) static FILE_WAITS: ProgramArray<1> = ProgramArray::new();

/// CPU number → ring for dumps of stacks, so that those cannot push out events. Empty while no
/// stacks of user code are taken, and the five maps behind are as good as.
#[btf_map]
pub(crate) static STACK_RINGS: ArrayOfMaps<Ring, MAX_CPUS> = ArrayOfMaps::new();

/// [`DumpKind::index`] → what this CPU has done about such dumps. The stack programs write, the
/// collector reads.
#[btf_map]
pub(crate) static DUMPS: PerCpuArray<DumpRow, { DumpKind::ALL.len() }> = PerCpuArray::new();

/// Thread number modulo the entries → the stack of a thread that is off the CPU. 8.5 MiB. Only the
/// stack programs use it.
#[btf_map]
pub(crate) static KEPT_STACKS: Array<Waiter<{ STACK_BYTES as usize }>, { WAITING as usize }> = Array::new();

/// The same for threads with deep stacks. 4 MiB.
#[btf_map]
pub(crate) static DEEP_STACKS: Array<Waiter<{ STACK_BYTES_MOST as usize }>, { WAITING_DEEP as usize }> = Array::new();

/// Thread number modulo the entries → bytes of stack to copy, if more than usual. The collector
/// writes.
#[btf_map]
pub(crate) static DEEP: Array<u32, { WAITING as usize }> = Array::new();

/// CPU number → where a sample of its is put together. Only the sampling program uses it.
#[btf_map]
pub(crate) static SAMPLES: Array<Dump<{ STACK_BYTES_MOST as usize }>, MAX_CPUS> = Array::new();

/// Interface index / 64, modulo the entries → a bit per watched interface. 8 KiB. The loader writes.
#[unsafe(link_section = ".data.devices")]
pub(crate) static DEVICES: Words<{ DEVICE_BITS as usize / 64 }> = Words::zero();

/// 0 → number of the reading for which senders are counted. The collector writes.
#[unsafe(link_section = ".data.turn")]
pub(crate) static TURN: Words<1> = Words::zero();

/// Number of the reading modulo 2 → what the senders sent that this CPU saw first in it. 14 KiB a CPU.
/// The transmit program writes, the collector reads what belongs to the turn before.
#[btf_map]
pub(crate) static NEAR: PerCpuArray<NearSenders, 2> = PerCpuArray::new();

/// Sender, flow and queue → what else went to the driver on this CPU. The transmit program writes, the
/// collector reads and removes what belongs to the turn before.
#[btf_map]
pub(crate) static SENT: PerCpuHashMap<SentKey, SentCount, MOST_SENT> = PerCpuHashMap::new();

/// 0 → what found no room in that on this CPU. The transmit program writes, the collector reads.
#[btf_map]
pub(crate) static UNCOUNTED: PerCpuArray<Uncounted, 1> = PerCpuArray::new();

/// Cookie of a socket → who sends through it. The egress program writes, the collector reads.
#[btf_map]
pub(crate) static SENDERS: LruHashMap<u64, Sender, MOST_SENDERS> = LruHashMap::new();

/// Cookie of a socket modulo the entries → the process that is known to send through it, so that
/// the map before need not be asked. 4 KiB a CPU. Only the egress program uses it.
#[btf_map]
pub(crate) static KNOWN_SENDERS: PerCpuArray<KnownSender, { KNOWN_SENDERS_KEPT as usize }> = PerCpuArray::new();

/// Entries of that, a power of two.
pub(crate) const KNOWN_SENDERS_KEPT: u32 = 256;

/// 0 → what the self-test programs saw. They write, the loader reads.
#[btf_map]
pub(crate) static SELF_TEST: Array<SelfTest, 1> = Array::new();

/// 0 → 1 once the run is over: from one moment on no program emits anything, though they are
/// taken off the host one after another. The loader writes.
#[btf_map]
pub(crate) static SILENT: Array<u32, 1> = Array::new();

/// What the programs of one CPU remember from run to run. Programs of a CPU interrupt each other
/// (process, softirq, hard interrupt), so `seq` is atomic. The rest is set in softirq, which does
/// not nest; that others clear `last_rx_skb` can only make a packet's socket unknown.
#[repr(C)]
pub(crate) struct CpuState {
    /// Attempts to emit on this CPU.
    pub(crate) seq: UnsafeCell<u64>,
    /// Nanoseconds spent in softirq since attach.
    pub(crate) softirq_ns: Cell<u64>,
    /// When the softirq being served began; 0 outside one, or when its begin was not seen.
    pub(crate) softirq_start_ns: Cell<u64>,
    /// When it was last looked whether a watched thread has this CPU.
    pub(crate) looked_ns: Cell<u64>,
    /// By vector, the short softirqs that no record has told of yet.
    pub(crate) short_softirqs: [ShortSoftirqs; SOFTIRQ_VECTORS],
    /// Vector being served plus 1; 0 outside softirq.
    pub(crate) softirq: Cell<u32>,
    /// Destination port of [`Self::last_rx_skb`], host order.
    pub(crate) last_rx_port: Cell<u16>,
    /// Its IP protocol.
    pub(crate) last_rx_protocol: Cell<u16>,
    /// The newest matching packet that came in on this CPU and has not reached a socket, left or
    /// been dropped here; 0 if none.
    pub(crate) last_rx_skb: Cell<u64>,
    /// `EventHeader::seq` of its ingress record.
    pub(crate) last_rx_seq: Cell<u64>,
    /// When dirty folios were last told of.
    pub(crate) dirtied_told_ns: Cell<u64>,
    /// Folios that got dirty since then.
    pub(crate) dirtied: Cell<u32>,
    /// When it came in.
    pub(crate) last_rx_ns: Cell<u64>,
    /// The stretch of time for which [`Self::port_drops`] counts.
    pub(crate) port_drops_at: Cell<u64>,
    /// Drops reported in it for their port alone.
    pub(crate) port_drops: Cell<u64>,
    /// The request that was completed last on this CPU.
    pub(crate) completed: Completed,
    /// The stretch of time for which [`Self::runs`] counts.
    pub(crate) runs_at: Cell<u64>,
    /// Runs of threads that nobody watches reported in it.
    pub(crate) runs: Cell<u64>,
    /// Kernel locks that a watched thread waits for, or waited for in its slice.
    pub(crate) spinning: Spinning,
    /// The softirq for received packets that has been raised and not begun.
    pub(crate) raised: Raised,
}

/// A softirq that has been raised, and what was true then.
#[repr(C)]
pub(crate) struct Raised {
    /// When; 0 if none is.
    pub(crate) at_ns: Cell<u64>,
    /// The thread that had the CPU.
    pub(crate) thread: Cell<u64>,
    /// When it had got the CPU.
    pub(crate) arrival: Cell<u64>,
    /// What the hypervisor had taken of the CPU.
    pub(crate) steal_ns: Cell<u64>,
    /// 1 if the CPU was in a softirq.
    pub(crate) in_softirq: Cell<u64>,
}

/// A socket and the process that sends through it.
#[repr(C)]
pub(crate) struct KnownSender {
    pub(crate) socket: Cell<u64>,
    pub(crate) tgid: Cell<u64>,
}

/// Exits of a guest on one vCPU that have not been told.
#[repr(C)]
pub(crate) struct GuestExits {
    /// When the guest exited; 0 while it runs.
    pub(crate) exit_ns: Cell<u64>,
    /// When its thread had got the CPU then.
    pub(crate) slice: Cell<u64>,
    /// When the first of them came.
    pub(crate) since_ns: Cell<u64>,
    /// How long they took.
    pub(crate) sum_ns: Cell<u64>,
    pub(crate) longest_ns: Cell<u64>,
    pub(crate) count: Cell<u64>,
    /// Processor and reason of the longest.
    pub(crate) longest: Cell<u64>,
    /// The same of the one that goes on.
    pub(crate) now: Cell<u64>,
}

/// A `bio` that waits for its device.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Bio {
    /// When it was queued.
    pub(crate) queued_ns: u64,
    /// When its request was first handed to the driver; 0 before.
    pub(crate) issued_ns: u64,
    /// Its device.
    pub(crate) device: u32,
    /// 1 if a throttle had held it back.
    pub(crate) throttled: u32,
    /// Thread that queued it, as `bpf_get_current_pid_tgid` tells it.
    pub(crate) by: u64,
}

/// A request whose completion may be under way.
#[repr(C)]
pub(crate) struct Completed {
    /// When the completion began; 0 if nothing is known of the request.
    pub(crate) done_ns: Cell<u64>,
    /// When the kernel had room for it.
    pub(crate) granted_ns: Cell<u64>,
    pub(crate) queued_ns: Cell<u64>,
    pub(crate) issued_ns: Cell<u64>,
    /// Thread that queued it, likewise.
    pub(crate) by: Cell<u64>,
    pub(crate) device: Cell<u32>,
    pub(crate) throttled: Cell<u32>,
    /// The current thread.
    pub(crate) tid: Cell<u32>,
    /// The softirq being served, as in [`CpuState::softirq`].
    pub(crate) softirq: Cell<u32>,
    /// What the completion interrupts: an [`Interrupt`](probe_wire::Interrupt).
    pub(crate) interrupt: Cell<u32>,
    pub(crate) reserved: u32,
}

/// What a thread has waited for kernel locks in one slice on this CPU.
#[repr(C)]
pub(crate) struct Spinning {
    /// Process and thread.
    thread: Cell<u64>,
    /// When the thread got this CPU, by the run queue's clock.
    arrived_ns: Cell<u64>,
    /// The wait that lasts.
    pub(crate) wait: Cell<LockWait>,
    /// Process and thread that had its lock when it began; 0 if the lock does not tell.
    pub(crate) owner: Cell<u64>,
    /// The name of that thread.
    pub(crate) owner_name: [Cell<u64>; 2],
    /// When the first wait began that no record has told of.
    pub(crate) since_ns: Cell<u64>,
    /// How long it waited since then.
    pub(crate) sum_ns: Cell<u64>,
    /// The longest of these waits, and how long that was.
    pub(crate) longest: Cell<LockWait>,
    longest_ns: Cell<u64>,
    pub(crate) longest_owner: Cell<u64>,
    pub(crate) longest_owner_name: [Cell<u64>; 2],
    /// How many they are.
    pub(crate) waits: Cell<u32>,
    reserved: u32,
}

/// A wait for a kernel lock.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct LockWait {
    /// 0 if there is none.
    pub(crate) began_ns: u64,
    pub(crate) lock: u64,
    pub(crate) flags: u32,
    pub(crate) reserved: u32,
}

impl LockWait {
    #[inline(always)]
    pub(crate) fn none() -> Self {
        let zero = emit::zero();
        Self { began_ns: zero, lock: zero, flags: zero as u32, reserved: zero as u32 }
    }
}

impl Spinning {
    /// Whether it is true of this slice: of a thread, from when it got this CPU.
    #[inline(always)]
    pub(crate) fn is_of(&self, (thread, arrived_ns): (u64, u64)) -> bool {
        self.thread.get() == thread && self.arrived_ns.get() == arrived_ns
    }

    /// Begins with another slice.
    #[inline(always)]
    pub(crate) fn start(&self, (thread, arrived_ns): (u64, u64)) {
        self.thread.set(thread);
        self.arrived_ns.set(arrived_ns);
        self.clear();
    }

    /// The slice is over.
    #[inline(always)]
    pub(crate) fn forget(&self) {
        self.thread.set(0);
        self.wait.set(LockWait::none());
        self.clear();
    }

    /// All has been told.
    #[inline(always)]
    pub(crate) fn clear(&self) {
        let zero = emit::zero();
        self.sum_ns.set(zero);
        self.longest_ns.set(zero);
        self.waits.set(zero as u32);
    }

    /// Adds a wait, whose lock had the owner that was noted.
    #[inline(always)]
    pub(crate) fn add(&self, wait: &LockWait, took_ns: u64) {
        if self.sum_ns.get() == 0 {
            self.since_ns.set(wait.began_ns);
        }
        self.sum_ns.set(self.sum_ns.get() + took_ns);
        self.waits.set(self.waits.get() + 1);
        if took_ns >= self.longest_ns.get() {
            self.longest_ns.set(took_ns);
            self.longest.set(*wait);
            self.longest_owner.set(self.owner.get());
            self.longest_owner_name[0].set(self.owner_name[0].get());
            self.longest_owner_name[1].set(self.owner_name[1].get());
        }
    }
}

/// Short softirqs of one vector.
#[repr(C)]
pub(crate) struct ShortSoftirqs {
    /// When the first began.
    pub(crate) since_ns: Cell<u64>,
    /// How long they ran together.
    pub(crate) sum_ns: Cell<u64>,
}

impl CpuState {
    /// Forgets the incoming packet if it is this one.
    #[inline(always)]
    pub(crate) fn forget_rx(&self, skb: u64) {
        if self.last_rx_skb.get() == skb {
            self.last_rx_skb.set(0);
        }
    }
}

/// This CPU's memory. `None` cannot happen, which the verifier does not know.
#[inline(always)]
pub(crate) fn cpu_state() -> Option<&'static CpuState> {
    CPU.get(0)
}

/// Registers and stack of a thread, as a record.
#[repr(C)]
pub(crate) struct Dump<const BYTES: usize> {
    pub(crate) header: EventHeader,
    pub(crate) body: DumpBody,
    /// The thread's memory from its stack pointer upwards.
    pub(crate) memory: [u8; BYTES],
}

/// A thread that is off the CPU.
#[repr(C)]
pub(crate) struct Waiter<const BYTES: usize> {
    /// 1 while a program uses it: threads of two CPUs can have the same place.
    busy: u64,
    /// Its number; 0 when the place is free.
    owner: u64,
    dump: Dump<BYTES>,
}

impl<const BYTES: usize> Waiter<BYTES> {
    /// The dump of a place for `tid` to write, or `None` while another CPU uses it; whether it was
    /// another thread's.
    #[inline(always)]
    pub(crate) fn occupy(place: *mut Self, tid: u32) -> (Option<&'static mut Dump<BYTES>>, bool) {
        // SAFETY: map memory lives as long as the program; `busy` is only written atomically, and
        // lends everything else to one program at a time.
        unsafe {
            if atomic::swap(&raw mut (*place).busy, 1) != 0 {
                return (None, true);
            }
            let owner = (*place).owner;
            (*place).owner = tid.into();
            (Some(&mut (*place).dump), owner != 0 && owner != u64::from(tid))
        }
    }

    /// The dump of a place that is `tid`'s; the place is free after its use.
    #[inline(always)]
    pub(crate) fn vacate(place: *mut Self, tid: u32) -> Option<&'static mut Dump<BYTES>> {
        // SAFETY: as in `occupy`; the owner is looked at once more when the place is held.
        unsafe {
            if (&raw const (*place).owner).read_volatile() != u64::from(tid)
                || atomic::swap(&raw mut (*place).busy, 1) != 0
            {
                return None;
            }
            if (&raw const (*place).owner).read_volatile() != u64::from(tid) {
                Self::release(place);
                return None;
            }
            (*place).owner = 0;
            Some(&mut (*place).dump)
        }
    }

    /// Ends the use that `occupy` or `vacate` began.
    #[inline(always)]
    pub(crate) fn release(place: *mut Self) {
        // SAFETY: the word lies in a map.
        unsafe { atomic::swap(&raw mut (*place).busy, 0) };
    }
}

/// Where an outgoing packet is.
#[derive(Clone, Copy)]
#[repr(u64)]
pub(crate) enum Whereabouts {
    /// On its way to the driver.
    Stack = 0,
    /// In the ring of a tap. Entries stay behind while nothing looks for them.
    Ring = 1,
}

/// Where a packet's first bytes are copied to be looked at, and what was recognised in them.
#[repr(C)]
pub(crate) struct Scratch {
    /// 1 while a program uses it: on a preemptible kernel another can come on this CPU.
    busy: u64,
    /// What was recognised.
    pub(crate) sighting: Sighting,
    /// The bytes.
    pub(crate) bytes: [u8; SNAP],
}

/// Who uses which scratch.
#[derive(Clone, Copy)]
pub(crate) enum ScratchSlot {
    /// Packets that come in.
    Ingress = 0,
    /// Packets that go out.
    Egress = 1,
    /// Packets that are dropped.
    Drop = 2,
}

impl Scratch {
    /// This CPU's scratch, or `None` while a program that was preempted holds it.
    #[inline(always)]
    pub(crate) fn take(slot: ScratchSlot) -> Option<&'static mut Self> {
        let scratch = SCRATCH.get_ptr_mut(slot as u32)?;
        // SAFETY: the slot lives as long as the program; `busy` is only written atomically, and
        // lends everything else to one program at a time.
        unsafe { (atomic::swap(&raw mut (*scratch).busy, 1) == 0).then(|| &mut *scratch) }
    }

    /// Ends the use that `take` began.
    #[inline(always)]
    pub(crate) fn give_back(&mut self) {
        // SAFETY: the word lies in this CPU's map slot.
        unsafe { atomic::swap(&raw mut self.busy, 0) };
    }
}

/// Words that the programs share without a map between: reading one is a load, and no lookup.
#[repr(transparent)]
pub(crate) struct Words<const COUNT: usize>(UnsafeCell<[u64; COUNT]>);

// SAFETY: a word is only ever read as a whole, and written atomically.
unsafe impl<const COUNT: usize> Sync for Words<COUNT> {}

impl<const COUNT: usize> Words<COUNT> {
    const fn zero() -> Self {
        Self(UnsafeCell::new([0; COUNT]))
    }

    /// Where a word is. Numbers beyond the last begin anew: without a comparison, the verifier knows
    /// that it is inside.
    #[inline(always)]
    pub(crate) fn at(&self, index: u32) -> *mut u64 {
        const { assert!(COUNT.is_power_of_two()) };
        // SAFETY: the index is below the count.
        unsafe { self.0.get().cast::<u64>().add(index as usize % COUNT) }
    }

    /// A word as it is now.
    #[inline(always)]
    pub(crate) fn get(&self, index: u32) -> u64 {
        // SAFETY: the word is within the memory.
        unsafe { self.at(index).read_volatile() }
    }
}

/// Read-only memory that the loader fills before the kernel sees it. The cell keeps the compiler
/// from folding the zeros that stand here; the kernel freezes the section, so the verifier folds
/// the real values and prunes what they switch off.
#[repr(transparent)]
pub(crate) struct Given<T>(UnsafeCell<T>);

// SAFETY: nothing writes the value once the programs are loaded: the kernel's map is frozen.
unsafe impl<T> Sync for Given<T> {}

impl<T> Given<T> {
    /// The value as the loader set it.
    #[inline(always)]
    pub(crate) fn get(&self) -> &T {
        // SAFETY: no one writes to the frozen section, so a shared reference is sound.
        unsafe { &*self.0.get() }
    }
}

/// What the loader tells the programs.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".rodata.settings")]
pub(crate) static SETTINGS: Given<Settings> = Given(UnsafeCell::new(
    // SAFETY: `Settings` is `FromBytes`: all-zero bytes are a value of it.
    unsafe { core::mem::zeroed() },
));

/// The rules once more, boiled down for the packets that do not match.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".rodata.prefilter")]
pub(crate) static PREFILTER: Given<Prefilter> = Given(UnsafeCell::new(
    // SAFETY: `Prefilter` is `FromBytes`: all-zero bytes are a value of it.
    unsafe { core::mem::zeroed() },
));
